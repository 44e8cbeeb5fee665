package messages

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// modelList is the response of GET /v1/models.
type modelList struct {
	Data  []modelCard `json:"data"`
	More  bool        `json:"has_more"`
	First *string     `json:"first_id"`
	Last  *string     `json:"last_id"`
}

// modelCard is the response of GET /v1/models/{id}.
type modelCard struct {
	Type    string `json:"type"` // model
	ID      string `json:"id"`
	Name    string `json:"display_name"`
	Created string `json:"created_at"`
	Stage   string `json:"lifecycle"` // active
	// MaxInput is the context length. It is omitted while it is unknown, before the model is loaded.
	MaxInput int `json:"max_input_tokens,omitzero"`
}

func card(k *generate.Known) modelCard {
	c := modelCard{Type: "model", ID: k.Name, Name: k.Name, Created: k.Created.UTC().Format(time.RFC3339), Stage: "active"}
	if k.Model != nil {
		c.MaxInput = k.Model.Limit()
	}
	return c
}

// Bounds of the limit of a list of models.
const usualModels, mostModels = 20, 1000

// ListModels serves GET /v1/models: a page of the models after after_id, or before before_id.
func (s *Server) ListModels(w http.ResponseWriter, r *http.Request) {
	nameRequest(w)
	page := modelList{Data: []modelCard{}}
	var list []generate.Known
	err := wire.ReadQuery(r, func(f *wire.Fields) {
		limit, after, before := usualModels, "", ""
		f.Integer("limit", &limit, 1, mostModels)
		f.String("after_id", &after)
		f.String("before_id", &before)
		list, page.More = between(f, s.models.KnownTo(r.Context()), after, before, limit)
	})
	if err != nil {
		respond(w, err)
		return
	}
	for i := range list {
		page.Data = append(page.Data, card(&list[i]))
	}
	if n := len(page.Data); n > 0 {
		page.First, page.Last = &page.Data[0].ID, &page.Data[n-1].ID
	}
	wire.WriteJSON(w, http.StatusOK, page)
}

// between returns at most limit models: the first ones after the id after, or the last ones before
// the id before. It reports whether there are more in that direction.
func between(f *wire.Fields, list []generate.Known, after, before string, limit int) ([]generate.Known, bool) {
	at := func(field, id string) int {
		i := slices.IndexFunc(list, func(k generate.Known) bool { return k.Name == id })
		if i < 0 {
			f.Fail(field, "Invalid value for {}: unknown model %q.", short(id))
			return 0
		}
		return i
	}
	switch {
	case after != "" && before != "":
		f.Fail("before_id", "'after_id' and {} exclude each other.")
	case before != "":
		list = list[:at("before_id", before)]
		return list[max(0, len(list)-limit):], len(list) > limit
	case after != "":
		list = list[min(len(list), at("after_id", after)+1):]
	}
	return list[:min(limit, len(list))], len(list) > limit
}

// Model serves GET /v1/models/{id}. The route's "*" is the id, which may contain slashes, escaped
// or not.
func (s *Server) Model(w http.ResponseWriter, r *http.Request) {
	nameRequest(w)
	id := r.PathValue("*")
	if plain, err := url.PathUnescape(id); err == nil {
		id = plain
	}
	m, err := s.models.Look(id)
	if err == nil && !wire.ClientOf(r.Context()).May(m.Name) {
		err = &wire.Error{Kind: wire.Forbidden, Message: "This API key may not use the model `" + m.Name + "`."}
	}
	if err != nil {
		respond(w, err)
		return
	}
	wire.WriteJSON(w, http.StatusOK, card(&m))
}
