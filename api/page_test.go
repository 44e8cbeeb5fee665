package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// pageSources are the files of the page by path below page/.
func pageSources(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir("page", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		files[strings.TrimPrefix(filepath.ToSlash(name), "page/")] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestPageIsServedWithoutAKey: every file of the page, with its type and the strict policy; nothing else
// below /page.
func TestPageIsServedWithoutAKey(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}), "secret")
	types := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8"}
	for name, want := range pageSources(t) {
		path := "/page/" + name
		if name == "index.html" {
			path = "/"
		}
		resp := s.do("GET", path, nil)
		_, got := s.text("GET", path, nil)
		if resp.StatusCode != 200 || got != want || resp.Header.Get("Content-Type") != types[filepath.Ext(name)] {
			t.Errorf("%s is %d of type %s, %d bytes, want %d", path, resp.StatusCode, resp.Header.Get("Content-Type"), len(got), len(want))
		}
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || regexp.MustCompile(`unsafe|\*|http|data:|blob:`).MatchString(policy) {
			t.Errorf("%s: policy %q", path, policy)
		}
	}
	for _, path := range []string{"/page/", "/page/index.html", "/page/../v1/models", "/page/%2e%2e/v1/models", "/page/lib"} {
		if status, _ := s.text("GET", path, nil); status != 401 {
			t.Errorf("%s without a key is %d, want 401", path, status)
		}
	}
}

// TestPageIsCachedByItsContents: a browser that has a file gets a 304.
func TestPageIsCachedByItsContents(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	tag := s.do("HEAD", "/page/main.js", nil).Header.Get("Etag")
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/page/main.js", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("If-None-Match", tag)
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 304 || tag == "" {
		t.Errorf("tag %q is answered with %d, want 304", tag, resp.StatusCode)
	}
}

// libraries are the page's libraries, as their npm packages have them.
var libraries = map[string]string{
	"lib/markdown-it.min.js": "391f2aa638e75e6c7859d0a5c5650ef0956722a45998f17e05b83bc655778e1e", // markdown-it 15.0.3
	"lib/purify.min.js":      "8053ee2a6a09f9d50f7fcd6fb7f07072f52c7f3fa9aa12147cab4feaf65ee970", // dompurify 3.4.18
}

// TestPageLibrariesAreUnchanged: they are pinned, small, and have their licences.
func TestPageLibrariesAreUnchanged(t *testing.T) {
	files, size := pageSources(t), 0
	for name, text := range files {
		if !strings.HasPrefix(name, "lib/") {
			continue
		}
		size += len(text)
		sum := sha256.Sum256([]byte(text))
		if filepath.Ext(name) == ".js" && libraries[name] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s has the hash %x, want %s", name, sum, libraries[name])
		}
	}
	if size == 0 || size > 200_000 {
		t.Errorf("libraries take %d bytes, want at most 200000", size)
	}
	for _, name := range []string{"markdown-it 15.0.3", "dompurify 3.4.18", "Permission is hereby granted"} {
		if !strings.Contains(files["lib/LICENSES.txt"], name) {
			t.Errorf("LICENSES.txt does not have %q", name)
		}
	}
}

// TestPageNamesNoOtherHost: its own files name no other server, have nothing inline that the policy
// forbids, and never turn text into elements.
func TestPageNamesNoOtherHost(t *testing.T) {
	for name, text := range pageSources(t) {
		if strings.HasPrefix(name, "lib/") {
			continue
		}
		rest := strings.NewReplacer("http://www.w3.org/2000/svg", "", "http://www.w3.org/1998/Math/MathML", "").Replace(text) // name spaces
		if found := regexp.MustCompile(`(?i)https?://[a-z0-9]`).FindString(rest); found != "" {
			t.Errorf("%s names another server: %s", name, found)
		}
		if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`).FindString(text); found != "" {
			t.Errorf("%s uses %s", name, found)
		}
		if name == "index.html" {
			if inline := regexp.MustCompile(`(?i)\s(on[a-z]+|style)=|<style|<script(>| [^>]*>[^<])`).FindString(text); inline != "" {
				t.Errorf("the policy forbids %q", inline)
			}
		}
	}
}
