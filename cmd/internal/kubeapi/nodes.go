// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"fmt"
	"io"
	"sync"
)

// InFlight is how many nodes are asked at a time.
const InFlight = 10

// EachNode calls ask with 0 to n-1, InFlight at a time, and says on progress how many of more nodes
// than that are done.
func EachNode(n int, progress io.Writer, ask func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range min(InFlight, n) {
		wg.Go(func() {
			for i := range next {
				ask(i)
				mu.Lock()
				if done++; n > InFlight && done%InFlight == 0 {
					fmt.Fprintf(progress, "%d of %d nodes\n", done, n)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
