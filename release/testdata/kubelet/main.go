// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Kubelet is a stand-in for the tests of the packages: it has a version, takes some flags, answers
// /healthz, and writes when it was started. What a kubelet does to pods other checks show.
package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
)

// The linker sets them.
var version, more string

func main() {
	known := append([]string{"version", "help", "kubeconfig", "require-kubeconfig", "container-runtime", "feature-gates", "fail-swap-on", "experimental-fail-swap-on"}, strings.Fields(more)...)
	for _, a := range os.Args[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if !slices.Contains(known, name) {
			fmt.Fprintln(os.Stderr, "unknown flag: --"+name)
			os.Exit(1)
		}
	}
	switch {
	case slices.Contains(os.Args, "--help"):
		fmt.Println("--feature-gates mapStringBool  AppArmor=true|false")
		return
	case slices.Contains(os.Args, "--version"):
		fmt.Println("Kubernetes", version)
		return
	}
	f, err := os.OpenFile("/run/kubelet.starts", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, version, strings.Join(os.Args[1:], " "))
	f.Close()
	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	panic(http.ListenAndServe("127.0.0.1:10248", nil))
}
