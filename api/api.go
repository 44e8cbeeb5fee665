package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
)

// Options is what New serves.
type Options struct {
	Models  []*generate.Model
	Metrics *Metrics               // the engine's observer too
	Status  func() dispatch.Status // how loading stands, what the tiers hold
	Plan    func() any             // the JSON of GET /plan
	Version string
	APIKeys []string // of which a request must bring one; empty: everyone may ask
}

// New is the handler of all paths.
func New(o Options) http.Handler {
	r := chi.NewRouter()
	return r
}
