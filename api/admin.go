package api

import (
	"net/http"
	"net/http/pprof"
	"time"
)

// NewAdminServer returns a server of /debug/pprof for operators. It needs no key, so it should
// listen on a loopback address. There it only accepts requests for IP addresses, localhost and the
// hosts of a. The returned server does not listen yet.
func NewAdminServer(a Access) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound) // the command line may contain keys
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	fail := func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusForbidden)
	}
	return &http.Server{Handler: secure(newGate(Access{Hosts: a.Hosts}, fail).protect(mux)), BaseContext: noteListener,
		MaxHeaderBytes: maxHeader, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
}
