package api

import (
	"crypto/sha256"
	_ "embed" // for the page's files
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
)

// The page's parts. They are joined into one file, so that / alone needs no key.
var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/page.js
	pageJS string
)

// servePage is GET /. The content policy allows the embedded script and style and requests to this
// server, and nothing else.
func servePage() http.HandlerFunc {
	page := strings.NewReplacer("{{css}}", pageCSS, "{{js}}", pageJS).Replace(pageHTML)
	policy := "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
		"; script-src " + digest(pageJS) + "; style-src " + digest(pageCSS)
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Length", strconv.Itoa(len(page)))
		_, _ = w.Write([]byte(page)) // the client may have disconnected
	}
}

// digest is how a policy names an inline script or style.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
