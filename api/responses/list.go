package responses

import (
	"net/http"
	"slices"

	"github.com/heftai/heft/api/wire"
)

// itemList is the response of GET /v1/responses/{id}/input_items.
type itemList struct {
	Object string       `json:"object"`
	Data   []*inputItem `json:"data"`
	First  *string      `json:"first_id"`
	Last   *string      `json:"last_id"`
	More   bool         `json:"has_more"`
}

// Bounds of limit.
const (
	usualItems = 20
	mostItems  = 100
)

// InputItems serves GET /v1/responses/{id}/input_items. It lists the items of that request only,
// the latest first unless order is asc.
func (s *Server) InputItems(w http.ResponseWriter, r *http.Request) {
	limit, descending, after, before := usualItems, true, "", ""
	err := wire.ReadQuery(r, func(f *wire.Fields) {
		f.Integer("limit", &limit, 1, mostItems)
		f.Order("order", &descending)
		f.String("after", &after)
		f.String("before", &before)
	})
	if err != nil {
		respond(w, err)
		return
	}
	items, err := s.inputOf(r)
	if err == nil {
		items = slices.Clone(items)
		if descending {
			slices.Reverse(items)
		}
		items, err = between(items, after, before)
	}
	if err != nil {
		respond(w, err)
		return
	}
	l := itemList{Object: "list", Data: items[:min(limit, len(items))], More: len(items) > limit}
	if n := len(l.Data); n > 0 {
		l.First, l.Last = &l.Data[0].ID, &l.Data[n-1].ID
	}
	wire.WriteJSON(w, http.StatusOK, l)
}

// inputOf returns the input of a stored response, or of one that is in progress.
func (s *Server) inputOf(r *http.Request) ([]*inputItem, error) {
	if run := s.running.find(r); run != nil {
		return run.input, nil
	}
	rec, err := s.find(r)
	if err != nil {
		return nil, err
	}
	return rec.Input, nil
}

// between returns the items after one id and before another. "" means the start or the end of the
// list.
func between(items []*inputItem, after, before string) ([]*inputItem, error) {
	at := func(field, id string) (int, error) {
		i := slices.IndexFunc(items, func(item *inputItem) bool { return item.ID == id })
		if i < 0 {
			return 0, wire.Invalidf(field, "Invalid value for '%s': unknown item %q.", field, short(id))
		}
		return i, nil
	}
	if before != "" {
		i, err := at("before", before)
		if err != nil {
			return nil, err
		}
		items = items[:i]
	}
	if after != "" {
		i, err := at("after", after)
		if err != nil {
			return nil, err
		}
		items = items[i+1:]
	}
	return list(items), nil
}
