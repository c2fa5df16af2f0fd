// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rollingupdates

import (
	"context"
	"slices"
	"time"

	"holdfast/tools/labs/internal/rbdlab"
)

// held are the nodes that have a pod's image mapped, and those that have it mounted. It is
// recorded whenever that has changed.
type held struct {
	Pod             string
	Mapped, Mounted []string
}

// most is on how many nodes the image is.
func (h held) most() int { return max(len(h.Mapped), len(h.Mounted)) }

// both is what two looks at the same image have in common.
func (h held) both(o held) held {
	in := func(a, b []string) []string {
		return slices.DeleteFunc(slices.Clone(a), func(n string) bool { return !slices.Contains(b, n) })
	}
	return held{Pod: h.Pod, Mapped: in(h.Mapped, o.Mapped), Mounted: in(h.Mounted, o.Mounted)}
}

func (h held) equal(o held) bool {
	return slices.Equal(h.Mapped, o.Mapped) && slices.Equal(h.Mounted, o.Mounted)
}

// watched says how well was looked: how often, the longest time between two looks in seconds,
// and why it ended early.
type watched struct {
	Looks   int
	Longest float64
	Failed  string
}

// watch looks all the time where images are mapped and mounted.
type watch struct {
	end  context.CancelFunc
	done chan struct{}
	held []held
	how  watched
}

// watchPause is between two looks, which read files only.
const watchPause = 200 * time.Millisecond

// startWatch watches the images of these pods until stop.
func startWatch(ctx context.Context, r *rbdlab.Rig, images map[string]string) *watch {
	ctx, end := context.WithCancel(ctx)
	w := &watch{end: end, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.run(ctx, func(pod string) (held, error) { return holders(r, pod, images[pod]) })
	}()
	return w
}

func (w *watch) run(ctx context.Context, look func(pod string) (held, error)) {
	was, last := map[string]held{}, time.Now()
	for ctx.Err() == nil {
		for _, pod := range podNames() {
			now, err := look(pod)
			if err == nil && now.most() > 1 {
				// One node may have let go after it was looked at, and the other mapped.
				var again held
				again, err = look(pod)
				now = now.both(again)
			}
			if err != nil {
				w.how.Failed = pod + ": " + err.Error()
				return
			}
			if old, ok := was[pod]; !ok || !old.equal(now) {
				was[pod] = now
				w.held = append(w.held, now)
			}
		}
		w.how.Looks++
		w.how.Longest = max(w.how.Longest, time.Since(last).Seconds())
		last = time.Now()
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
}

// stop ends the watch; then what it saw may be read.
func (w *watch) stop() {
	w.end()
	<-w.done
}

// holders is one look at one image, node by node.
func holders(r *rbdlab.Rig, pod, image string) (held, error) {
	h := held{Pod: pod}
	for _, name := range []string{"node1", "node2"} {
		n := r.Node(name)
		devices, err := n.Devices(image)
		if err != nil {
			return h, err
		}
		mounts, err := n.MountsOf(image)
		if err != nil {
			return h, err
		}
		if len(devices) > 0 {
			h.Mapped = append(h.Mapped, name)
		}
		if len(mounts) > 0 {
			h.Mounted = append(h.Mounted, name)
		}
	}
	return h, nil
}
