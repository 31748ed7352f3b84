// Package kubernetes is imported for its version alone.
package kubernetes
