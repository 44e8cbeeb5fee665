package api

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heftai/heft/api/wire"
)

// unrouted answers requests without an endpoint.
type unrouted struct {
	routes chi.Routes
	fail   failure
}

// path answers requests for paths without an endpoint.
func (u unrouted) path(w http.ResponseWriter, r *http.Request) {
	instead, near := elsewhere[r.URL.Path], ""
	if instead == "" {
		near = nearPath(u.routes, r)
	}
	if near == "" {
		instead = insteadOf(r.URL.Path)
	}
	err := wire.NoSuchRoute(r, near)
	if instead != "" {
		err.Message += ": " + instead + "."
	}
	if wantsWebSocket(r) {
		err.Message = strings.TrimSuffix(err.Message, ".") + ". The server has no WebSockets."
	}
	u.fail(w, r, err)
}

// method answers requests whose method is unknown or has no endpoint at their path.
func (u unrouted) method(w http.ResponseWriter, r *http.Request) {
	methods := strings.Join(methodsOf(u.routes, r.URL.Path), ", ")
	if methods == "" {
		u.path(w, r)
		return
	}
	w.Header().Set("Allow", methods)
	if wantsWebSocket(r) { // after a 426 clients use HTTP; after other errors they first retry
		w.Header().Set("Upgrade", "HTTP/1.1")
		w.Header().Set("Connection", "Upgrade")
		u.fail(w, r, &wire.Error{Kind: wire.NoWebSocket, Message: "The server has no WebSockets: send " + methods + " " + r.URL.Path + " over HTTP, with \"stream\": true for events"})
		return
	}
	u.fail(w, r, &wire.Error{Kind: wire.NoMethod, Message: "Method not allowed: " + r.Method + " " + r.URL.Path + "; use " + methods})
}

// wantsWebSocket reports whether r opens a WebSocket. Clients of OpenAI's realtime sessions and
// Codex do.
func wantsWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}
