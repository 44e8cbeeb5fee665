package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/messages"
	"github.com/heftai/heft/api/ollama"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/responses"
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine/holder"
)

// Options say how a model is served. The zero value works.
type Options struct {
	Models  []*generate.Model // further models, each under its name
	Version string            // shown by GET /version
	APIKeys []string          // of which a request must bring one; empty: requests need none
	Access  Access            // which web pages and host names may use the server
	// Timeouts limit how long clients may take; New itself keeps only the one for stalling.
	Timeouts Timeouts
	// Lazy makes Serve read no weight before a request needs it. GET /ready is then 200 at once.
	Lazy bool
	// ShutdownTimeout is how long Serve lets requests run after its context has ended; 0 means
	// 30 seconds.
	ShutdownTimeout time.Duration
	// Store keeps what clients read again, such as responses; nil: a part of the memory for requests does, until
	// the handler's process ends.
	Store *store.Store
	// Status and Plan are what /health, /metrics and GET /plan show; nil: those of the model.
	Status func() dispatch.Status
	Plan   func() any
}

// A service is what the handlers share.
type service struct {
	models []*generate.Model // the first answers requests that name none
	Options
}

func newService(m *generate.Model, o Options) *service {
	s := &service{models: append(append([]*generate.Model{m}, m.Adapters()...), o.Models...), Options: o}
	if d := m.Dispatched(); d != nil {
		if s.Status == nil {
			s.Status = d.Status
		}
		if s.Plan == nil {
			s.Plan = func() any { return dispatch.NewReport(d.Plan()).With(d.Measured()) }
		}
	}
	if s.Status == nil { // a model without weights, in tests
		s.Status = func() dispatch.Status { return dispatch.Status{Loading: dispatch.Loading{Done: true}} }
	}
	if s.Plan == nil {
		s.Plan = func() any { return struct{}{} }
	}
	s.Timeouts = s.Timeouts.withDefaults()
	return s
}

// adapters is how many of the models are adapters.
func (s *service) adapters() int {
	n := 0
	for _, m := range s.models {
		if m.Adapter != "" {
			n++
		}
	}
	return n
}

// New returns the handler that serves m and its adapters on all paths. Requests that name no model
// go to m. GET /ready is 503 until [dispatch.Model.Warm] is done, which Serve calls, unless
// Options.Lazy is set. Any number of handlers may serve one model.
func New(m *generate.Model, options Options) http.Handler {
	s := newService(m, options)
	return s.handler(m, dialects{openAI(openai.New(s.models), responses.New(s.models, s.kept(m))), anthropic(messages.New(s.models)),
		ollamas(ollama.New(s.models, s.Version))})
}

// storeShare of the requests' memory is for what is stored, where that is in memory.
const storeShare = 16

// kept is the store of the handler.
func (s *service) kept(m *generate.Model) *store.Store {
	if s.Store != nil {
		return s.Store
	}
	bytes := requestBytes(m) / storeShare
	d := m.Dispatched()
	if d == nil || d.RequestBytes() == 0 {
		return store.NewMemory(bytes, nil)
	}
	kept := store.NewMemory(bytes, d.CountRequests)
	d.NotifyRequests(func(n int64) { kept.Resize(n / storeShare) })
	return kept
}

// handler serves ds, and what all dialects share.
func (s *service) handler(m *generate.Model, ds dialects) http.Handler {
	fail := func(w http.ResponseWriter, r *http.Request, err error) { ds.errorsOf(r)(w, err) }
	r := chi.NewRouter()
	r.Use(patient(s.Timeouts.Stall), identify, logAccess, recoverPanic(fail), secure, newGate(s.Access, fail).protect,
		guard(s.APIKeys, fail), s.requestMemory(m).Limit(ds.errorsOf), middleware.GetHead)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) { fail(w, r, wire.NoSuchRoute(r)) })
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Allow", strings.Join(methodsOf(r, req.URL.Path), ", "))
		fail(w, req, &wire.Error{Kind: wire.NoMethod, Message: "Method not allowed: " + req.Method + " " + req.URL.Path})
	})

	metrics := newMetrics(m.Name, m.Limit())
	e := holder.Engine(m)
	e.Observe(metrics)
	r.Get("/", servePage())
	r.Get("/health", s.health)
	r.Get("/ready", s.ready)
	r.Get("/version", s.version)
	r.Method(http.MethodGet, "/metrics", metrics.handler(e, s.adapters(), s.Status))
	r.Get("/plan", s.plan)
	r.Get("/activity", (&activities{service: s, begin: time.Now(), period: activityPeriod}).serve(fail))
	ds.mount(r)
	return r
}

// requestBytes is what the plan of m keeps for requests and connections.
func requestBytes(m *generate.Model) int64 {
	if d := m.Dispatched(); d != nil && d.RequestBytes() > 0 {
		return d.RequestBytes()
	}
	return wire.DefaultMemory
}

// ofRequests is what is left of n bytes without the shares of connections that have no request and of what
// is stored in memory.
func (s *service) ofRequests(n int64) int64 {
	rest := n - n/connectionShare
	if s.Store == nil {
		rest -= n / storeShare
	}
	return rest
}

// requestMemory is the memory of the requests to m.
func (s *service) requestMemory(m *generate.Model) *wire.Memory {
	bytes := s.ofRequests(requestBytes(m))
	if d := m.Dispatched(); d != nil && d.RequestBytes() > 0 {
		all := wire.NewMemory(bytes, d.CountRequests)
		d.NotifyRequests(func(n int64) { all.Admit(s.ofRequests(n)) })
		return all
	}
	return wire.NewMemory(bytes, nil)
}

// failure answers a request with an error, in the dialect of the request's path.
type failure func(http.ResponseWriter, *http.Request, error)

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
