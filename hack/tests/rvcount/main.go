// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Rvcount is a controller that does nothing but count: it keeps ConfigMaps and
// Secrets of a namespace in informers of the client-go that it is built with, and
// writes what it gets, one JSON object a line:
//
//	{"what":"watch","resource":"configmaps","resourceVersion":"12"}   a watch starts
//	{"what":"event","resource":"configmaps","type":"ADDED",…}         an event arrives
//	{"what":"delete","resource":"configmaps","name":"a",…}            a handler is called: add, update or delete
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/pkg/version"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

type line struct {
	What            string `json:"what"`
	Resource        string `json:"resource"`
	Type            string `json:"type,omitempty"`
	Name            string `json:"name,omitempty"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

var (
	mu  sync.Mutex
	out = json.NewEncoder(os.Stdout)
)

func write(l line) {
	mu.Lock()
	defer mu.Unlock()
	if err := out.Encode(l); err != nil {
		panic(err)
	}
}

func of(what, resource, eventType string, obj interface{}) line {
	l := line{What: what, Resource: resource, Type: eventType}
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	if o, err := meta.Accessor(obj); err == nil {
		l.Name, l.UID, l.ResourceVersion = o.GetName(), string(o.GetUID()), o.GetResourceVersion()
	}
	return l
}

func count(client kubernetes.Interface, namespace, resource string, obj runtime.Object, stop chan struct{}) {
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), resource, namespace, fields.Everything())
	start := lw.WatchFunc
	lw.WatchFunc = func(options metav1.ListOptions) (watch.Interface, error) {
		write(line{What: "watch", Resource: resource, ResourceVersion: options.ResourceVersion})
		w, err := start(options)
		if err != nil {
			return nil, err
		}
		return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
			write(of("event", resource, string(e.Type), e.Object))
			return e, true
		}), nil
	}
	_, c := cache.NewInformer(lw, obj, 0, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o interface{}) { write(of("add", resource, "", o)) },
		UpdateFunc: func(_, o interface{}) { write(of("update", resource, "", o)) },
		DeleteFunc: func(o interface{}) { write(of("delete", resource, "", o)) },
	})
	go c.Run(stop)
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the API server")
	namespace := flag.String("namespace", "default", "namespace to count in")
	showVersion := flag.Bool("version", false, "print the release of the client-go that is linked and end")
	flag.Parse()
	if *showVersion {
		fmt.Println("Kubernetes client-go", version.Get().GitVersion)
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fmt.Fprintf(os.Stderr, "rvcount: --kubeconfig %q: %v\n", *kubeconfig, err)
		os.Exit(1)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fmt.Fprintf(os.Stderr, "rvcount: %v\n", err)
		os.Exit(1)
	}
	stop := make(chan struct{})
	count(client, *namespace, "configmaps", &v1.ConfigMap{}, stop)
	count(client, *namespace, "secrets", &v1.Secret{}, stop)
	select {}
}
