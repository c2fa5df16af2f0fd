// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/tools/labkit/node"
)

// OwnTools are static programs of ours that run in containers or under
// dockerd; their source is tools/cmd/<name>.
var OwnTools = []string{"cnicount", "labpod", "runcclamp", "rbdshim", "vmagent"}

// buildTools builds them; the Go build cache makes a second time quick.
func buildTools(ctx context.Context, root string) error {
	dir := filepath.Dir(node.ToolPath(root, "x"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/"}
	for _, t := range OwnTools {
		args = append(args, "./cmd/"+t)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(root, "tools")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", strings.Join(OwnTools, ", "), cmd.Dir, err, out)
	}
	return nil
}
