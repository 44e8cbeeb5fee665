package api

import (
	"encoding/json"
	"net/http"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
)

// state is the body of /health and /ready.
type state struct {
	Status  string           `json:"status"`
	Loading dispatch.Loading `json:"loading"`
	Error   string           `json:"error,omitempty"`  // why weights could not be read ahead
	Models  []modelState     `json:"models,omitempty"` // of a server with several base models
}

// modelState is one base model of a server with several.
type modelState struct {
	Model  string              `json:"model"`
	Status generate.ModelState `json:"status"`
	Error  string              `json:"error,omitempty"` // only where a key is needed, as it names files
}

// modelStates are the base models without the reasons of failures, nil if there is only one.
func (o *service) modelStates() []modelState {
	var list []modelState
	for _, k := range o.models.Known() {
		if k.Parent == "" {
			list = append(list, modelState{Model: k.Name, Status: k.State})
		}
	}
	if len(list) < 2 {
		return nil
	}
	return list
}

// loading is how far reading ahead is, of the first loaded model that still does or has failed.
func (o *service) loading() dispatch.Loading {
	var of *dispatch.Loading
	o.models.Each(func(m *generate.Model, _ func() any) {
		l := o.statusOf(m).Loading
		if of == nil || of.Done && of.Err == nil && (!l.Done || l.Err != nil) {
			of = &l
		}
	})
	if of == nil { // no model is loaded: requests load them
		return dispatch.Loading{Done: true}
	}
	return *of
}

// health says that requests are accepted, and how far loading is.
func (o *service) health(w http.ResponseWriter, r *http.Request) {
	loading := o.loading()
	writeJSON(w, http.StatusOK, state{Status: "ok", Loading: loading, Error: reason(loading.Err), Models: o.modelStates()})
}

// ready answers whether answers come at full speed: the CPU tier is in memory. A lazy server is ready
// at once, and so is one without a loaded model.
func (o *service) ready(w http.ResponseWriter, r *http.Request) {
	loading := o.loading()
	s := state{Status: "ready", Loading: loading, Error: reason(loading.Err), Models: o.modelStates()}
	code := http.StatusOK
	switch {
	case o.models.Draining():
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

func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (o *service) version(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": o.Version})
}

// modelPlan is a base model in the answer of GET /plan of a server with several.
type modelPlan struct {
	modelState
	Plan any `json:"plan,omitempty"` // of a model that is loaded
}

// plan is GET /plan: where each block lives, with predicted and measured speeds. With several models, the plan of the
// first one that is loaded has all of them in a field of its own.
func (o *service) plan(w http.ResponseWriter, r *http.Request) {
	var first any
	plans := map[string]any{}
	o.models.Each(func(m *generate.Model, plan func() any) {
		switch d := m.Dispatched(); {
		case o.Plan != nil:
			plans[m.Name] = o.Plan()
		case plan != nil:
			plans[m.Name] = plan()
		case d != nil:
			plans[m.Name] = dispatch.NewReport(d.Plan()).With(d.Measured())
		default:
			plans[m.Name] = struct{}{}
		}
		if first == nil {
			first = plans[m.Name]
		}
	})
	states := o.modelStates()
	if first != nil && states == nil {
		writeJSON(w, http.StatusOK, first)
		return
	}
	fields := map[string]any{}
	if b, err := json.Marshal(first); err == nil && first != nil {
		var of map[string]json.RawMessage
		_ = json.Unmarshal(b, &of) // of an object that was written here
		for name, v := range of {
			fields[name] = v
		}
	}
	list := []modelPlan{}
	for _, s := range states {
		if k, err := o.models.Look(s.Model); err == nil {
			s.Error = reason(k.Err)
		}
		list = append(list, modelPlan{s, plans[s.Model]})
	}
	fields["models"] = list
	writeJSON(w, http.StatusOK, fields)
}
