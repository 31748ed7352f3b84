// The parts of helm that check and render a chart, without those that talk to a cluster or a
// registry: it is built in a fifth of the time. `client-go` stands in for Kubernetes' module of
// this name, which helm needs for `lookup`; neither command looks anything up.
//
// Another version of helm: change go.mod, then `go mod tidy -e`; what it says of tests is no harm.
//
//	helm lint CHART < VALUES.yaml
//	helm template CHART RELEASE NAMESPACE [API_VERSION...] < VALUES.yaml
//
// Both end with 1 on a failure. `lint` prints a message a line, `template` an object of JSON: each
// template's path and what it came to.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

func main() {
	log.SetFlags(0)
	given, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(given, &values); err != nil {
		log.Fatal(err)
	}
	switch os.Args[1] {
	case "lint":
		lintChart(os.Args[2], values)
	case "template":
		render(os.Args[2], os.Args[3], os.Args[4], os.Args[5:], values)
	default:
		log.Fatalf("unknown command %s", os.Args[1])
	}
}

func lintChart(chart string, values map[string]any) {
	result := lint.RunAll(chart, values, "default")
	for _, message := range result.Messages {
		fmt.Println(message.Error())
	}
	if result.HighestSeverity >= support.ErrorSev {
		os.Exit(1)
	}
}

func render(path, release, namespace string, apis []string, values map[string]any) {
	chart, err := loader.Load(path)
	if err != nil {
		log.Fatal(err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(capabilities.APIVersions, apis...)
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		log.Fatal(err)
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(rendered); err != nil {
		log.Fatal(err)
	}
}
