// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package labkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ownTools are static programs of ours that run in containers or under
// dockerd; their source is tools/cmd/<name>.
var ownTools = []string{"labpod", "runcclamp"}

// ToolPath is where the program of that name is, for a lab that runs it outside of
// a container.
func ToolPath(root, name string) string { return toolPath(root, name) }

func toolPath(root, name string) string {
	return filepath.Join(root, "_output", "tools", "bin", name)
}

// buildTools builds them; the Go build cache makes a second time quick.
func buildTools(ctx context.Context, root string) error {
	dir := filepath.Dir(toolPath(root, "x"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/"}
	for _, t := range ownTools {
		args = append(args, "./cmd/"+t)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(root, "tools")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", strings.Join(ownTools, ", "), cmd.Dir, err, out)
	}
	return nil
}
