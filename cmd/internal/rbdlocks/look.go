// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package rbdlocks

import (
	"context"
	"io"
)

// Ceph says how Ceph is asked: its configuration, its user and the keyring of that. An empty field is
// rbd's own default.
type Ceph struct{ Conf, ID, Keyring string }

// Found tells whether the image needs a look.
func (a *Answer) Found() bool { return finding(*a) }

// Look asks about all images that the API names, as the command does. With an error the answers are
// those until then; an image that could not be asked is an answer Unknown.
func Look(ctx context.Context, a api, how Ceph, progress io.Writer) ([]Answer, error) {
	s := &survey{a: a, r: &ceph{program: "rbd", limits: defaultLimits(), conf: how.Conf, id: how.ID, keyring: how.Keyring}, q: quiet{}}
	return s.all(ctx, progress)
}

func (s *survey) all(ctx context.Context, progress io.Writer) ([]Answer, error) {
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	var out []Answer
	err := s.each(ctx, s.c.named(""), progress, func(a Answer) error {
		out = append(out, a)
		return nil
	})
	if err == nil && len(s.c.errs) > 0 {
		err = s.c.errs[0]
	}
	return out, err
}
