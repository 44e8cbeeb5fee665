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
	Error   string           `json:"error,omitempty"`  // why reading weights ahead failed
	Models  []modelState     `json:"models,omitempty"` // if the server has several base models
}

// modelState describes one base model of a server with several.
type modelState struct {
	Model  string              `json:"model"`
	Status generate.ModelState `json:"status"`
	Error  string              `json:"error,omitempty"` // only if a key is needed, because it names files
}

// modelStates returns the base models without the reasons of failures, or nil if there is only one.
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

// loading returns the progress of reading ahead, of the first loaded model whose reading continues
// or has failed.
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

// health serves GET /health: whether requests are accepted, and the progress of loading.
func (o *service) health(w http.ResponseWriter, r *http.Request) {
	loading := o.loading()
	writeJSON(w, http.StatusOK, state{Status: "ok", Loading: loading, Error: reason(loading.Err), Models: o.modelStates()})
}

// ready serves GET /ready: whether answers come at full speed because the cpu tier is in memory. A
// lazy server is ready at once, and so is a server without a loaded model.
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

// modelPlan is a base model in the response of GET /plan of a server with several.
type modelPlan struct {
	modelState
	Plan any `json:"plan,omitempty"` // if the model is loaded
}

// plan serves GET /plan: the placement of each block, with predicted and measured speeds. If there
// are several models, the response is the plan of the first loaded one with an additional field for
// all models.
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
		_ = json.Unmarshal(b, &of) // of an object that was encoded above
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
