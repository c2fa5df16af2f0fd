// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/net/html"
)

// page is what a page of the site has and wants.
type page struct {
	ids   map[string]bool
	links []string
}

// Check looks at every page of a site: it names links that lead nowhere, what a browser would load
// from elsewhere, and pictures without a text.
func Check(dir string) ([]string, error) {
	all := map[string]*page{}
	var bad []string
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".html") {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		p, faults := parse(string(content))
		for _, f := range faults {
			bad = append(bad, filepath.ToSlash(name)+": "+f)
		}
		all[filepath.ToSlash(name)] = p
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(all) < 2 {
		return nil, fmt.Errorf("%s has %d pages", dir, len(all))
	}
	for name, p := range all {
		if name == "404.html" {
			continue // its links are those of the site's root
		}
		for _, link := range p.links {
			u, err := url.Parse(link)
			if err != nil {
				bad = append(bad, fmt.Sprintf("%s: the link %s cannot be read: %v", name, link, err))
				continue
			}
			if u.Scheme != "" || u.Host != "" {
				continue
			}
			target := name
			if u.Path != "" {
				target = path.Join(path.Dir(name), u.Path)
			}
			if info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(target))); err == nil && info.IsDir() {
				target = path.Join(target, "index.html")
			}
			to := all[target]
			if to == nil {
				if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(target))); err != nil {
					bad = append(bad, fmt.Sprintf("%s: the link %s leads nowhere", name, link))
				}
			} else if u.Fragment != "" && !to.ids[u.Fragment] {
				bad = append(bad, fmt.Sprintf("%s: the link %s: %s has no such heading", name, link, target))
			}
		}
	}
	return bad, nil
}

// parse reads one page.
func parse(content string) (*page, []string) {
	p := &page{ids: map[string]bool{}}
	var bad []string
	z := html.NewTokenizer(strings.NewReader(content))
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			return p, bad
		}
		if kind != html.StartTagToken && kind != html.SelfClosingTagToken {
			continue
		}
		t := z.Token()
		at := map[string]string{}
		for _, a := range t.Attr {
			at[a.Key] = a.Val
		}
		if at["id"] != "" {
			p.ids[at["id"]] = true
		}
		load := ""
		switch t.Data {
		case "a":
			if at["href"] != "" {
				p.links = append(p.links, at["href"])
			}
		case "link":
			if at["rel"] != "canonical" {
				load = at["href"]
			}
		case "script", "img", "iframe", "source":
			load = at["src"]
		}
		if t.Data == "img" && strings.TrimSpace(at["alt"]) == "" {
			bad = append(bad, "the picture "+at["src"]+" has no text")
		}
		if load == "" {
			continue
		}
		if strings.HasPrefix(load, "//") || strings.Contains(load, "://") {
			bad = append(bad, "a browser loads "+load+" from elsewhere")
		} else if !strings.HasPrefix(load, "data:") {
			p.links = append(p.links, load)
		}
	}
}
