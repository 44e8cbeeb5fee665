package api

import (
	"encoding/json"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/dispatch"
)

// Options is what New serves.
type Options struct {
	Models  []*generate.Model      // at least one; the first answers requests that name none
	Metrics *Metrics               // the engine's observer too
	Status  func() dispatch.Status // how loading stands, what the tiers hold
	Plan    func() any             // the JSON of GET /plan
	Version string
	APIKeys []string // of which a request must bring one; empty: everyone may ask
	// Timeouts are what clients are given; Server keeps all of them, New that for stalling.
	Timeouts Timeouts
}

// adapters is how many of the models are adapters.
func (o *Options) adapters() int {
	n := 0
	for _, m := range o.Models {
		if m.Adapter != "" {
			n++
		}
	}
	return n
}

// New returns the handler of all paths.
func New(o Options) http.Handler {
	ds := dialects{openAI(openai.New(o.Models))}
	fail := func(w http.ResponseWriter, r *http.Request, err error) { ds.errorsOf(r)(w, err) }
	r := chi.NewRouter()
	r.Use(patient(o.Timeouts.Stall), identify, logAccess, recoverPanic(fail), secure, guard(o.APIKeys, fail), wire.NewBodies().Limit(ds.errorsOf), middleware.GetHead)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) { fail(w, r, wire.NoSuchRoute(r)) })
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		fail(w, r, &wire.Error{Kind: wire.NoMethod, Message: "Method not allowed: " + r.Method + " " + r.URL.Path})
	})

	r.Get("/", servePage())
	r.Get("/health", o.health)
	r.Get("/ready", o.ready)
	r.Get("/version", o.version)
	r.Method(http.MethodGet, "/metrics", o.Metrics.handler(o.Models[0].Engine, o.adapters(), o.Status))
	r.Get("/plan", o.plan)
	ds.mount(r)
	return r
}

// failure answers a request with an error, in the dialect of the request's path.
type failure func(http.ResponseWriter, *http.Request, error)

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone away misses nothing
}
