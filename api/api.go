package api

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/heftai/heft/api/batches"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/keys"
	"github.com/heftai/heft/api/messages"
	"github.com/heftai/heft/api/ollama"
	"github.com/heftai/heft/api/openai"
	"github.com/heftai/heft/api/responses"
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/dispatch"
)

// Options say how a model is served. The zero value works.
type Options struct {
	Models []*generate.Model // further models, each under its name
	// Catalog has the models instead of New's argument and Models, some of them loaded on demand.
	Catalog *generate.Models
	Version string   // shown by GET /version
	APIKeys []string // of which a request must bring one; empty: requests need none
	// Keys are further keys that a request may use, with names and limits; nil means none.
	Keys *keys.Set
	// AdminKeys are keys that also allow changing what is served. If requests need no key, all clients may.
	AdminKeys []string
	// LoraDir is the folder below which clients may load LoRA adapters; "": they may not.
	LoraDir string
	Access  Access // which web pages and host names may use the server
	// Timeouts limit how long clients may take; New itself keeps only the one for stalling.
	Timeouts Timeouts
	// AccessLog gets a line for each request at level info; nil: slog.Default().
	AccessLog *slog.Logger
	// Lazy makes Serve read no weight before a request needs it. GET /ready is then 200 at once.
	Lazy bool
	// ShutdownTimeout is how long Serve lets requests run after its context has ended; 0 means
	// 30 seconds.
	ShutdownTimeout time.Duration
	// Store keeps what clients read again, such as responses; nil: a part of the memory for requests does, until
	// the handler's process ends.
	Store *store.Store
	// KVStore is what the models' dispatch.Options have, for GET /metrics; nil: none.
	KVStore *dispatch.KVStore
	// Batches has files and batches; nil: their endpoints answer 400. Serve stops it, else its owner does.
	Batches *batches.Server
	// Backend, if not nil, is called once by [New]. Its argument answers the lines of a batch file; pass it to
	// [batches.Run].
	Backend func(batches.Backend)
	// Status and Plan are what /health, /metrics and GET /plan show; nil: those of each model.
	Status func() dispatch.Status
	Plan   func() any
	// Requests is the memory for requests; zero: that of the first model's plan.
	Requests RequestMemory
}

// RequestMemory is memory for requests that no single model counts.
type RequestMemory struct {
	Bytes int64
	Count func(n int64) // counts n more bytes, or fewer if n is negative; nil: nothing counts
	// Notify registers a function that is called with the new Bytes when they change; nil: they never change.
	Notify func(func(n int64))
}

// A service is what the handlers share.
type service struct {
	models *generate.Models
	lines  map[string]http.Handler // endpoints that lines of batches may have
	Options
}

// newService returns the service of m, which may be nil, or of o.Catalog if that is set.
func newService(m *generate.Model, o Options) *service {
	s := &service{models: o.Catalog, Options: o}
	if s.models == nil {
		list := []*generate.Model{m}
		if m != nil {
			list = append(list, m.Adapters()...)
		}
		s.models = generate.NewModels(append(list, o.Models...)...)
	}
	if m != nil && s.Requests.Bytes == 0 {
		s.Requests = requestsOf(m)
	}
	if s.Requests.Bytes == 0 {
		s.Requests.Bytes = wire.DefaultMemory
	}
	s.Timeouts = s.Timeouts.withDefaults()
	if s.Batches == nil {
		s.Batches = batches.Off(batches.NoStore)
	}
	return s
}

// statusOf are the counters of a model that is loaded.
func (s *service) statusOf(m *generate.Model) dispatch.Status {
	d := m.Dispatched()
	switch {
	case s.Status != nil:
		return s.Status()
	case d != nil:
		return d.Status()
	}
	return dispatch.Status{Loading: dispatch.Loading{Done: true}} // a model without weights, in tests
}

// New returns the handler that serves m and its adapters on all paths. Requests that name no model
// go to m. GET /ready is 503 until [dispatch.Model.Warm] is done, which Serve calls, unless
// Options.Lazy is set. Any number of handlers may serve one model. With Options.Catalog m is nil. If m is nil
// and there are no other models, requests for answers are a 404.
func New(m *generate.Model, options Options) http.Handler {
	s := newService(m, options)
	open, kept := openai.New(s.models), responses.New(s.models, s.kept(m))
	s.lines = map[string]http.Handler{"/v1/chat/completions": http.HandlerFunc(open.ChatCompletions), "/v1/completions": http.HandlerFunc(open.Completions),
		"/v1/embeddings": http.HandlerFunc(open.Embeddings), "/v1/responses": http.HandlerFunc(kept.Create)}
	claude := messages.New(s.models)
	more := append(s.adapterRoutes(),
		route{http.MethodGet, modelsPath, byVersion(claude.ListModels, open.ListModels)}, route{http.MethodGet, modelsPath + "/*", byVersion(claude.Model, open.Model)})
	return s.handler(m, dialects{openAI(open, kept, s.Batches, more...), anthropic(claude),
		ollamas(ollama.New(s.models, s.Version))})
}

// adapterRoutes are the routes that load and unload adapters, for clients that may.
func (s *service) adapterRoutes() []route {
	a := openai.NewAdapters(s.models, s.LoraDir)
	return []route{{http.MethodPost, "/v1/load_lora_adapter", admin(a.Load)}, {http.MethodPost, "/v1/unload_lora_adapter", admin(a.Unload)}}
}

// admin passes requests that may change what is served.
func admin(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := wire.ClientOf(r.Context()).CheckAdmin(); err != nil {
			openai.WriteError(w, err)
			return
		}
		next(w, r)
	}
}

// storeShare of the requests' memory is for what is stored, where that is in memory.
const storeShare = 16

// kept is the store of the handler. Its memory follows that of m, which may be nil.
func (s *service) kept(m *generate.Model) *store.Store {
	if s.Store != nil {
		return s.Store
	}
	kept := store.NewMemory(s.Requests.Bytes/storeShare, s.Requests.Count)
	s.follow(func(n int64) { kept.Resize(n / storeShare) })
	return kept
}

// requestsOf is the memory that the plan of m keeps for requests.
func requestsOf(m *generate.Model) RequestMemory {
	if d := m.Dispatched(); d != nil && d.RequestBytes() > 0 {
		return RequestMemory{d.RequestBytes(), d.CountRequests, d.NotifyRequests}
	}
	return RequestMemory{}
}

// follow calls f when the memory for requests changes with the limit of memory.
func (s *service) follow(f func(n int64)) {
	if s.Requests.Notify != nil {
		s.Requests.Notify(f)
	}
}

// handler serves ds, and what all dialects share. The memory for requests follows that of m, which may be nil.
func (s *service) handler(m *generate.Model, ds dialects) http.Handler {
	fail := func(w http.ResponseWriter, r *http.Request, err error) { ds.errorsOf(r)(w, err) }
	requests := wire.NewMemory(s.ofRequests(s.Requests.Bytes), s.Requests.Count)
	s.follow(func(n int64) { requests.Admit(s.ofRequests(n)) })
	r := chi.NewRouter()
	r.Use(patient(s.Timeouts.Stall), identify, logAccess(s.AccessLog), recoverPanic(fail), secure, newGate(s.Access, fail).protect,
		newGuard(s.APIKeys, s.AdminKeys, s.Keys, fail).protect, limit(requests, ds.errorsOf), middleware.GetHead, leased)
	others := unrouted{r, fail}
	r.NotFound(others.path)
	r.MethodNotAllowed(others.method)

	for url, name := range pagePaths {
		r.Get(url, servePage(name))
	}
	r.Get("/health", s.health)
	r.Get("/ready", s.ready)
	r.Get("/version", s.version)
	r.Method(http.MethodGet, "/metrics", s.metrics())
	r.Get("/plan", s.plan)
	r.Get("/activity", (&activities{service: s, begin: time.Now(), period: activityPeriod}).serve(fail))
	r.Get(documentPath, s.documented(r))
	ds.mount(r)
	backend := batches.Backend{Endpoints: s.lines, MaxLine: requests.MaxBody(), Parallel: s.slots(), Client: s.clientOf,
		Limit: func(next http.Handler) http.Handler { return requests.Limit(ds.errorsOf)(leased(next)) }}
	if s.Batches.Begin(backend); s.Backend != nil {
		s.Backend(backend)
	}
	return r
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

// leased keeps the models that a request uses loaded until it is answered.
func leased(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := generate.WithLeases(r.Context())
		defer end()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// failure answers a request with an error, in the dialect of the request's path.
type failure func(http.ResponseWriter, *http.Request, error)

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
