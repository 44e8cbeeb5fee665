package openai

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// modelList is the response of GET /v1/models.
type modelList struct {
	Object string      `json:"object"`
	Data   []modelCard `json:"data"`
}

// modelCard is the response of GET /v1/models/{id}.
type modelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// Parent and MaxModelLen are vLLM's: an adapter's base, null for a base model, and the maximum
	// number of tokens.
	Parent      *string `json:"parent"`
	MaxModelLen int     `json:"max_model_len,omitzero"` // omitted while it is unknown, before the model is loaded
	// Status is known, loading, ready or failed. Error says why loading failed.
	Status generate.ModelState `json:"status"`
	Error  string              `json:"error,omitzero"`
	// NoChat says why the model cannot chat. It is omitted if it can.
	NoChat string `json:"no_chat,omitzero"`
}

// ListModels serves GET /v1/models.
func (s *Server) ListModels(w http.ResponseWriter, r *http.Request) {
	list := modelList{Object: "list", Data: []modelCard{}}
	for _, m := range s.models.KnownTo(r.Context()) {
		list.Data = append(list.Data, card(&m))
	}
	wire.WriteJSON(w, http.StatusOK, list)
}

// Model serves GET /v1/models/{id}. The route's "*" is the id, which may contain slashes, escaped
// or not.
func (s *Server) Model(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("*")
	if plain, err := url.PathUnescape(id); err == nil {
		id = plain
	}
	if id == "" {
		respond(w, wire.NoSuchRoute(r, "/v1/models"))
		return
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

func card(m *generate.Known) modelCard {
	c := modelCard{ID: m.Name, Object: "model", Created: m.Created.Unix(), OwnedBy: "heft", Status: m.State}
	if m.Parent != "" {
		c.Parent = &m.Parent
	}
	if m.Err != nil {
		c.Error = m.Err.Error()
	}
	if m.Model == nil {
		return c
	}
	c.MaxModelLen = m.Model.Limit()
	var why *wire.Error
	if errors.As(m.Model.NoChat(), &why) {
		c.NoChat = why.Message
	}
	return c
}
