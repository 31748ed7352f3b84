// Package scheme knows the kinds of Kubernetes. Here it knows none: what a chart renders is
// checked against Kubernetes' own schemas elsewhere.
package scheme

import "k8s.io/apimachinery/pkg/runtime"

// Scheme knows no kind.
var Scheme = runtime.NewScheme()

// AddToScheme adds nothing.
func AddToScheme(*runtime.Scheme) error { return nil }
