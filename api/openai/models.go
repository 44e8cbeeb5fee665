package openai

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// modelList is the answer of GET /v1/models.
type modelList struct {
	Object string      `json:"object"`
	Data   []modelCard `json:"data"`
}

// modelCard is the answer of GET /v1/models/{id}.
type modelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// vLLM's: an adapter's base, null for a base, and the most tokens.
	Parent      *string `json:"parent"`
	MaxModelLen int     `json:"max_model_len,omitzero"` // left out while it is unknown: the model was not loaded yet
	// Status is known, loading, ready or failed; Error says why it failed.
	Status generate.ModelState `json:"status"`
	Error  string              `json:"error,omitzero"`
	// NoChat is why the model cannot chat; left out if it can.
	NoChat string `json:"no_chat,omitzero"`
}

// ListModels is GET /v1/models.
func (s *Server) ListModels(w http.ResponseWriter, r *http.Request) {
	list := modelList{Object: "list", Data: []modelCard{}}
	for _, m := range s.models.KnownTo(r.Context()) {
		list.Data = append(list.Data, card(&m))
	}
	wire.WriteJSON(w, http.StatusOK, list)
}

// Model is GET /v1/models/{id}, where the route's "*" is the id: it may have slashes,
// escaped or not.
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
