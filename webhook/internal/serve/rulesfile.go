// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"holdfast/webhook/internal/exit"
	"holdfast/webhook/internal/rules"
)

// Source reads rules, from a file or a ConfigMap, and hands each new set on. A
// file that is wrong changes nothing.
type Source struct {
	File string
	// Namespace, Name and Key are those of a ConfigMap, where there is no File.
	Namespace, Name, Key string
	Log                  *slog.Logger
	// Use is called with each new set.
	Use func(*rules.Set)
	// Loaded and Failed count.
	Loaded, Failed atomic.Int64

	last []byte
}

// DefaultKey is a ConfigMap's key with the rules.
const DefaultKey = "rules.yaml"

// ParseConfigMap reads NAMESPACE/NAME or NAMESPACE/NAME/KEY.
func (s *Source) ParseConfigMap(value string) error {
	parts := strings.Split(value, "/")
	if len(parts) == 2 {
		parts = append(parts, DefaultKey)
	}
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return exit.Usagef("--rules-configmap %q: it is NAMESPACE/NAME or NAMESPACE/NAME/KEY", value)
	}
	s.Namespace, s.Name, s.Key = parts[0], parts[1], parts[2]
	return nil
}

// Take reads one text. What is as it was is nothing new.
func (s *Source) Take(from string, text []byte) error {
	if s.last != nil && bytes.Equal(text, s.last) {
		return nil
	}
	s.last = bytes.Clone(text)
	set, err := rules.Parse(from, text)
	if err != nil {
		s.Failed.Add(1)
		return err
	}
	s.Loaded.Add(1)
	s.Log.Info("rules read", "from", from, "rules", len(set.Rules), "dryRun", set.DryRun)
	s.Use(set)
	return nil
}

func (s *Source) readFile() error {
	info, err := os.Stat(s.File)
	if err != nil {
		return err
	}
	if info.Size() > 4*rules.MaxFile {
		return fmt.Errorf("%s: %d bytes: the limit is %d", s.File, info.Size(), rules.MaxFile)
	}
	text, err := os.ReadFile(s.File)
	if err != nil {
		return err
	}
	return s.Take(s.File, text)
}

// Start reads a file for the first time, whose mistakes end the program, or
// begins to watch the ConfigMap; until that is there, there are no rules.
func (s *Source) Start(ctx context.Context, client kubernetes.Interface) error {
	if s.File != "" {
		if err := s.readFile(); err != nil {
			return err
		}
		go s.poll(ctx)
		return nil
	}
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.Namespace), informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.Name).String()
	}))
	take := func(o any) {
		m, ok := o.(*v1.ConfigMap)
		if !ok || m.Name != s.Name || m.Namespace != s.Namespace {
			return
		}
		from := "configmap " + s.Namespace + "/" + s.Name + ", key " + s.Key
		text, ok := m.Data[s.Key]
		if !ok {
			s.Failed.Add(1)
			s.Log.Error("the rules that were read before stay in force", "error", from+": there is no such key")
			return
		}
		if err := s.Take(from, []byte(text)); err != nil {
			s.Log.Error("the rules that were read before stay in force", "error", err.Error())
		}
	}
	if _, err := f.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: take, UpdateFunc: func(_, o any) { take(o) }}); err != nil {
		return err
	}
	f.Start(ctx.Done())
	return nil
}

// poll looks at the file every second. Kubernetes swaps mounted ConfigMaps by a
// symbolic link, which a watch on the file would not see.
func (s *Source) poll(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := s.readFile()
		if err != nil && err.Error() != said {
			s.Log.Error("the rules that were read before stay in force", "error", err.Error())
		}
		if said = ""; err != nil {
			said = err.Error()
		}
	}
}
