// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/features"
)

var versionRE = regexp.MustCompile(`^v(\d+)\.(\d+)\.(\d+)`)

// CheckVersion refuses API servers with which the program does not work. version
// is what /version has as gitVersion.
func CheckVersion(version string) error {
	m := versionRE.FindStringSubmatch(version)
	if m == nil {
		return fmt.Errorf("the API server says that its version is %q, which is no v1.MINOR.PATCH: it must be v1.9.3 or later", version)
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1])
	}
	switch {
	case n[0] != 1:
	case n[1] < 9:
		return fmt.Errorf("the API server is %s: it has no admission webhooks of v1beta1, v1.9.3 is the first release that this works with", version)
	case n[1] == 9 && n[2] < 3:
		return fmt.Errorf("the API server is %s: its watches send old resourceVersions (kubernetes#58547), and clients then restart from the past and lose objects: upgrade it to v1.9.3 or later", version)
	}
	return nil
}

// WaitForServer asks the API server for its version, every so often until it answers, and is
// an error if the program does not work with that release.
func WaitForServer(ctx context.Context, d discovery.ServerVersionInterface, every time.Duration, log *slog.Logger) error {
	said := ""
	for {
		version, err := d.ServerVersion()
		if err == nil {
			if err := CheckVersion(version.GitVersion); err != nil {
				return err
			}
			log.Info("start", "apiserver", version.GitVersion)
			return nil
		}
		if text := err.Error(); text != said {
			log.Warn("waiting for the API server", "error", text)
			said = text
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

// gates are client-go's feature gates without one.
type gates struct{ features.Gates }

func (g gates) Enabled(f features.Feature) bool {
	return f != features.WatchListClient && g.Gates.Enabled(f)
}

// OldServers has the informers list and then watch. A list by way of a watch
// (WatchListClient) is something that releases before 1.27 do not know: they leave
// the option out of account, and the informer waits for its end for ever.
func OldServers() { features.ReplaceFeatureGates(gates{features.FeatureGates()}) }
