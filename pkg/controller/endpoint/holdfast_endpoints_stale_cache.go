// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"strconv"
	"sync"
	"time"

	"github.com/golang/glog"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/features"
)

// The controller compares what Endpoints should be with its cache, which may be behind:
// behind its own last write, behind somebody else's, or behind a deletion. It then takes
// what is stored for right and writes nothing, or writes on top of a version that is gone,
// at each try. And nothing tells it when the cache has caught up, because it does not
// follow Endpoints.

const (
	// endpointsEventDelay lets the news of a Service arrive before its Endpoints are made
	// again: a Service and its Endpoints are deleted together, and come by two watches.
	endpointsEventDelay = 200 * time.Millisecond
	// endpointsRestoreInterval bounds how often Endpoints that somebody else changed are
	// written anew. Who changes them again within that time wins, as without the feature.
	endpointsRestoreInterval = 10 * time.Minute
)

var (
	endpointsLiveReads = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_endpoints_stale_cache_live_reads_total",
		Help: "Endpoints that the endpoints controller read from the API server because its cache was behind.",
	})
	endpointsRequeued = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_endpoints_stale_cache_requeued_total",
		Help: "Services that the endpoints controller looks at again because somebody else deleted or changed their Endpoints.",
	}, []string{"cause"})
)

func init() {
	prometheus.MustRegister(endpointsLiveReads, endpointsRequeued)
	for _, cause := range []string{"deleted", "changed"} {
		endpointsRequeued.WithLabelValues(cause)
	}
}

// endpointsWrites is what the controller knows about its writes, by the keys of Services. A
// key goes with its Endpoints, or with its Service if Endpoints could never be written, so
// there are as many as there are Services with a selector.
type endpointsWrites struct {
	sync.Mutex
	byKey map[string]*endpointsWrite
}

type endpointsWrite struct {
	// version is the resource version of the last write, "" if this process wrote none.
	version string
	// writing: a write is under way. seen is the version of the last event meanwhile, and
	// gone that they were deleted meanwhile.
	writing bool
	seen    string
	gone    bool
	// refused: the last write was refused because something else is stored.
	refused bool
	// restored is when a change of somebody else was last taken up.
	restored time.Time
}

// of returns the entry of key, under the lock.
func (w *endpointsWrites) of(key string) *endpointsWrite {
	if w.byKey == nil {
		w.byKey = map[string]*endpointsWrite{}
	}
	entry := w.byKey[key]
	if entry == nil {
		entry = &endpointsWrite{}
		w.byKey[key] = entry
	}
	return entry
}

// takeUp says whether a foreign change is to be looked at now, under the lock.
func (w *endpointsWrite) takeUp(now time.Time) bool {
	if now.Sub(w.restored) < endpointsRestoreInterval {
		return false
	}
	w.restored = now
	return true
}

// older says whether resource version a is older than b. What is no number is not.
func older(a, b string) bool {
	m, err := strconv.ParseUint(a, 10, 64)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(b, 10, 64)
	return err == nil && m < n
}

// watchEndpoints makes the controller follow Endpoints. It is called once, before Run.
func (e *EndpointController) watchEndpoints(informer coreinformers.EndpointsInformer) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.EndpointsStaleCacheCheck) {
		return
	}
	informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: e.endpointsChanged,
		DeleteFunc: e.endpointsDeleted,
	})
}

// selects says whether the controller makes the Endpoints of that name. It makes none for
// the leases of leader elections, which change every 2 s.
func (e *EndpointController) selects(namespace, name string) bool {
	service, err := e.serviceLister.Services(namespace).Get(name)
	return err == nil && service.Spec.Selector != nil
}

// endpointsDeleted is called with deleted Endpoints. If their Service is there, they are
// made again.
func (e *EndpointController) endpointsDeleted(obj interface{}) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return
	}
	e.writes.Lock()
	if entry := e.writes.byKey[key]; entry != nil && entry.writing {
		entry.gone = true
	} else {
		delete(e.writes.byKey, key)
	}
	e.writes.Unlock()
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil || !e.selects(namespace, name) {
		return
	}
	endpointsRequeued.WithLabelValues("deleted").Inc()
	e.queue.AddAfter(key, endpointsEventDelay)
}

// endpointsChanged is called with each new version of Endpoints, and with the same version
// when the informer lists again. Versions that this controller wrote, or that it wrote
// over, are none of its business, nor is a change of anything but addresses and labels.
func (e *EndpointController) endpointsChanged(old, cur interface{}) {
	was, ok := old.(*v1.Endpoints)
	is, isEndpoints := cur.(*v1.Endpoints)
	if !ok || !isEndpoints || was.ResourceVersion == is.ResourceVersion || !e.selects(is.Namespace, is.Name) {
		return
	}
	if apiequality.Semantic.DeepEqual(was.Subsets, is.Subsets) && apiequality.Semantic.DeepEqual(was.Labels, is.Labels) {
		return
	}
	key := is.Namespace + "/" + is.Name
	e.writes.Lock()
	defer e.writes.Unlock()
	entry := e.writes.of(key)
	switch {
	case entry.writing:
		entry.seen = is.ResourceVersion
	case is.ResourceVersion == entry.version || older(is.ResourceVersion, entry.version):
	case entry.takeUp(time.Now()):
		e.requeueChanged(key)
	}
}

// forgetWrites is called when the Service of key is gone. Endpoints that could never be
// written have no deletion that would take the key away.
func (e *EndpointController) forgetWrites(key string) {
	e.writes.Lock()
	defer e.writes.Unlock()
	delete(e.writes.byKey, key)
}

func (e *EndpointController) requeueChanged(key string) {
	glog.V(2).Infof("Endpoints %s were changed by somebody else, looking at them again", key)
	endpointsRequeued.WithLabelValues("changed").Inc()
	e.queue.AddAfter(key, endpointsEventDelay)
}

// storedEndpoints returns the Endpoints of that name as the cache has them, or as the API
// server has them if the cache is known to be behind: it does not have this controller's
// last write, or that was refused.
func (e *EndpointController) storedEndpoints(namespace, name string) (*v1.Endpoints, error) {
	cached, err := e.endpointsLister.Endpoints(namespace).Get(name)
	if !utilfeature.DefaultFeatureGate.Enabled(features.EndpointsStaleCacheCheck) {
		return cached, err
	}
	key := namespace + "/" + name
	e.writes.Lock()
	entry := e.writes.byKey[key]
	behind := entry != nil && (entry.refused || entry.version != "" &&
		(err == nil && older(cached.ResourceVersion, entry.version) || errors.IsNotFound(err)))
	e.writes.Unlock()
	if !behind {
		return cached, err
	}
	endpointsLiveReads.Inc()
	live, err := e.client.CoreV1().Endpoints(namespace).Get(name, metav1.GetOptions{})
	if err == nil || errors.IsNotFound(err) {
		e.writes.Lock()
		entry.refused = false
		if err != nil {
			entry.version = ""
		}
		e.writes.Unlock()
	}
	return live, err
}

// writeEndpoints sends a Create or Update, and remembers what came of it. One worker at a
// time has a key. New Endpoints do not have their namespace yet.
func (e *EndpointController) writeEndpoints(namespace string, endpoints *v1.Endpoints, send func(*v1.Endpoints) (*v1.Endpoints, error)) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.EndpointsStaleCacheCheck) {
		_, err := send(endpoints)
		return err
	}
	key := namespace + "/" + endpoints.Name
	e.writes.Lock()
	entry := e.writes.of(key)
	entry.writing, entry.seen, entry.gone = true, "", false
	e.writes.Unlock()

	stored, err := send(endpoints)

	e.writes.Lock()
	defer e.writes.Unlock()
	entry.writing = false
	if entry.gone { // the cache knows, and there is nothing to remember
		delete(e.writes.byKey, key)
		return err
	}
	if err != nil {
		entry.refused = errors.IsNotFound(err) || errors.IsConflict(err) || errors.IsAlreadyExists(err)
		return err
	}
	entry.version, entry.refused = stored.ResourceVersion, false
	if older(entry.version, entry.seen) && entry.takeUp(time.Now()) {
		e.requeueChanged(key)
	}
	return nil
}
