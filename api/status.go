package api

import (
	"net/http"

	"github.com/heftai/heft/dispatch"
)

// state is the body of /health and /ready.
type state struct {
	Status  string           `json:"status"`
	Loading dispatch.Loading `json:"loading"`
	Error   string           `json:"error,omitempty"` // why weights could not be read ahead
}

// health says that requests are accepted, and how far loading is.
func (o *service) health(w http.ResponseWriter, r *http.Request) {
	loading := o.Status().Loading
	writeJSON(w, http.StatusOK, state{Status: "ok", Loading: loading, Error: reason(loading.Err)})
}

// ready answers whether answers come at full speed: the CPU tier is in memory. A lazy server is ready
// at once.
func (o *service) ready(w http.ResponseWriter, r *http.Request) {
	loading := o.Status().Loading
	s := state{Status: "ready", Loading: loading, Error: reason(loading.Err)}
	code := http.StatusOK
	switch {
	case o.draining():
		s.Status, code = "draining", http.StatusServiceUnavailable
	case !loading.Done && !o.Lazy:
		s.Status, code = "loading", http.StatusServiceUnavailable
	case loading.Err != nil:
		s.Status, code = "broken", http.StatusServiceUnavailable
	}
	if code != http.StatusOK {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, code, s)
}

func (o *service) draining() bool {
	for _, m := range o.models {
		if m.Draining() {
			return true
		}
	}
	return false
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (o *service) version(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": o.Version})
}

// plan is GET /plan: where each block lives, with predicted and measured speeds.
func (o *service) plan(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, o.Plan())
}
