// Package rest names a cluster, where there is one.
package rest

// Config names no cluster.
type Config struct{}
