// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DockerEvent is one event of a container.
type DockerEvent struct {
	// Action is kill, die, start and so on.
	Action string
	ID     string
	// Labels has the container's labels, and the event's own attributes.
	Labels map[string]string
	Time   time.Time
}

// WatchEvents calls f for every event of a container from now on, until ctx ends. When
// it returns, dockerd sends. The error of the stream, nil if ctx ended it, comes from the
// channel. Unlike inspect it also has containers that are removed meanwhile.
func (d *Docker) WatchEvents(ctx context.Context, f func(DockerEvent)) (<-chan error, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://docker/events?filters="+url.QueryEscape(`{"type":["container"]}`), nil)
	if err != nil {
		return nil, err
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return nil, &DockerError{resp.StatusCode, "GET /events", strings.TrimSpace(string(b))}
	}
	ended := make(chan error, 1)
	go func() {
		defer resp.Body.Close()
		dec := json.NewDecoder(resp.Body)
		for {
			var e struct {
				Action string
				Actor  struct {
					ID         string
					Attributes map[string]string
				}
				TimeNano int64 `json:"timeNano"`
			}
			if err := dec.Decode(&e); err != nil {
				if ctx.Err() != nil || errors.Is(err, context.Canceled) {
					err = nil
				} else {
					err = fmt.Errorf("docker's events: %w", err)
				}
				ended <- err
				return
			}
			f(DockerEvent{Action: e.Action, ID: e.Actor.ID, Labels: e.Actor.Attributes, Time: time.Unix(0, e.TimeNano)})
		}
	}()
	return ended, nil
}
