package api

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"time"
)

// pageFiles are the files of the page. Those in lib are unchanged libraries of a fixed version; see
// page/lib/LICENSES.txt.
//
//go:embed page
var pageFiles embed.FS

// pageIndex is the file that is served at /.
const pageIndex = "page/index.html"

// pagePolicy lets the page run its own files and send requests to this server only: no inline
// script or style, no eval, no other host. A script can turn text into elements only through the
// sanitiser's policy.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; trusted-types dompurify"

// pagePaths maps URLs to the page's files. They need no key.
var pagePaths = listPage()

func listPage() map[string]string {
	paths := map[string]string{"/": pageIndex}
	err := fs.WalkDir(pageFiles, "page", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && name != pageIndex {
			paths["/"+name] = name
		}
		return err
	})
	if err != nil {
		panic(err) // the files are embedded
	}
	return paths
}

// servePage serves a file of the page. Browsers revalidate their copy each time.
func servePage(name string) http.HandlerFunc {
	body, err := pageFiles.ReadFile(name)
	if err != nil {
		panic(err) // the files are embedded
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:12]) + `"`
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", pageType(name))
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		h.Set("Etag", tag)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
	}
}

// pageType returns the media type of a file. It ignores the system's table of types, which may be
// wrong for scripts.
func pageType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}
