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
	// Catalog replaces New's argument and Models. Some of its models may be loaded on demand.
	Catalog *generate.Models
	Version string   // shown by GET /version
	APIKeys []string // accepted keys; empty: requests need none
	// Keys are further accepted keys, each with a name and limits; nil means none.
	Keys *keys.Set
	// AdminKeys are keys that also allow changing the served models and adapters. If requests need
	// no key, all clients may change them.
	AdminKeys []string
	// LoraDir is the folder from which clients may load LoRA adapters. If it is "", they may not
	// load any.
	LoraDir string
	Access  Access // which web pages and host names may use the server
	// Timeouts limit how long clients may take. A handler of New applies only the limit for stalled
	// clients.
	Timeouts Timeouts
	// AccessLog gets a line for each request at level info; nil means slog.Default().
	AccessLog *slog.Logger
	// Lazy makes Serve read no weights before the first request that needs them. GET /ready then
	// returns 200 at once.
	Lazy bool
	// ShutdownTimeout is how long Serve lets running requests continue after its context has ended;
	// 0 means 30 seconds.
	ShutdownTimeout time.Duration
	// Store keeps data that clients retrieve later, such as responses. If it is nil, a part of the
	// memory for requests keeps it until the process ends.
	Store *store.Store
	// KVStore is the KV store of the models' dispatch.Options, for GET /metrics; nil means none.
	KVStore *dispatch.KVStore
	// Batches serves files and batches. If it is nil, their endpoints return 400. Serve stops it; a
	// caller of New stops it itself.
	Batches *batches.Server
	// Backend, if not nil, is called once by [New]. Its argument answers the lines of a batch file
	// and can be passed to [batches.Run].
	Backend func(batches.Backend)
	// Status and Plan provide the data of /health, /metrics and GET /plan. If they are nil, each
	// model's own data is used.
	Status func() dispatch.Status
	Plan   func() any
	// Requests is the memory for requests. The zero value means the memory in the first model's
	// plan.
	Requests RequestMemory
}

// RequestMemory is memory for requests that is shared by several models.
type RequestMemory struct {
	Bytes int64
	Count func(n int64) // adds n bytes to the count; n may be negative; nil: nothing is counted
	// Notify registers a function that is called with the new value of Bytes when it changes; nil
	// means that it never changes.
	Notify func(func(n int64))
}

// A service is the state that all handlers share.
type service struct {
	models *generate.Models
	lines  map[string]http.Handler // endpoints that the lines of batches may call
	Options
}

// newService returns the service of o.Catalog, or of m if there is no catalog. m may be nil.
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

// statusOf returns the counters of a loaded model.
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
// use m. GET /ready returns 503 until [dispatch.Model.Warm] is done, unless Options.Lazy is set;
// [Serve] calls Warm. Several handlers may serve one model. With Options.Catalog m is nil. If m is
// nil and there are no other models, requests for answers return 404.
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

// adapterRoutes returns the routes that load and unload adapters. They need an admin key.
func (s *service) adapterRoutes() []route {
	a := openai.NewAdapters(s.models, s.LoraDir)
	return []route{{http.MethodPost, "/v1/load_lora_adapter", admin(a.Load)}, {http.MethodPost, "/v1/unload_lora_adapter", admin(a.Unload)}}
}

// admin rejects requests that may not change the served models and adapters.
func admin(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := wire.ClientOf(r.Context()).CheckAdmin(); err != nil {
			openai.WriteError(w, err)
			return
		}
		next(w, r)
	}
}

// storeShare: 1/storeShare of the memory for requests is for stored data, if that is kept in
// memory.
const storeShare = 16

// kept returns the store of the handler. A store in memory changes its size with the memory for
// requests of m, which may be nil.
func (s *service) kept(m *generate.Model) *store.Store {
	if s.Store != nil {
		return s.Store
	}
	kept := store.NewMemory(s.Requests.Bytes/storeShare, s.Requests.Count)
	s.follow(func(n int64) { kept.Resize(n / storeShare) })
	return kept
}

// requestsOf returns the memory that the plan of m keeps for requests.
func requestsOf(m *generate.Model) RequestMemory {
	if d := m.Dispatched(); d != nil && d.RequestBytes() > 0 {
		return RequestMemory{d.RequestBytes(), d.CountRequests, d.NotifyRequests}
	}
	return RequestMemory{}
}

// follow calls f whenever the memory for requests changes.
func (s *service) follow(f func(n int64)) {
	if s.Requests.Notify != nil {
		s.Requests.Notify(f)
	}
}

// handler returns the handler of ds and of the endpoints that all dialects share. The memory for
// requests is that of m, which may be nil.
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

// ofRequests subtracts from n bytes the memory of connections without a request, and the share of
// data that is stored in memory.
func (s *service) ofRequests(n int64) int64 {
	rest := n - n/connectionShare - silentConnections*silentBytes
	if s.Store == nil {
		rest -= n / storeShare
	}
	return rest
}

// leased keeps the models that a request uses loaded until the request is answered.
func leased(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := generate.WithLeases(r.Context())
		defer end()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// failure writes an error in the dialect of the request's path.
type failure func(http.ResponseWriter, *http.Request, error)

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
