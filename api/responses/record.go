package responses

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/api/wire"
)

// A record is a response as it is stored.
type record struct {
	Response *response    `json:"response"`
	Input    []*inputItem `json:"input"`
	Pieces   []pieces     `json:"pieces"`  // of each item of the output
	Encrypt  bool         `json:"encrypt"` // see builder
}

// readCopies is the number of copies of a record that are in memory while it is read and its items
// become a prompt.
const readCopies = 4

// UnmarshalJSON decodes an item of a record.
func (i *inputItem) UnmarshalJSON(b []byte) error {
	f, err := wire.ParseFields(b)
	if err != nil {
		return err
	}
	*i = *decodeItem(f)
	return f.Err()
}

// load reads a stored response of the request's owner. It returns store.ErrNotFound if there is
// none.
func (s *Server) load(ctx context.Context, id string) (*record, error) {
	if !responseID.MatchString(id) {
		return nil, store.ErrNotFound
	}
	claim := wire.ClaimOf(ctx)
	reserve := func(n int) error { return claim.Keep(n) }
	b, err := s.store.Get(wire.OwnerOf(ctx), id, reserve)
	if err != nil {
		return nil, err
	}
	if err := claim.Keep((readCopies - 1) * len(b)); err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil || !r.whole() {
		slog.Warn("a stored response cannot be read", "id", id, "reason", err)
		return nil, store.ErrNotFound
	}
	return &r, nil
}

// whole reports whether a record has the fields that other code relies on. A file with the right
// hash may come from another version.
func (r *record) whole() bool {
	if r.Response == nil || slices.Contains(r.Input, nil) || slices.Contains(r.Response.Output, nil) {
		return false
	}
	return r.Response.Status != failed || r.Response.Error != nil
}

// save stores a record. If that fails, the response's field store is set to false.
func (s *Server) save(owner string, r *record) {
	b, err := encode(r)
	if err == nil {
		err = s.store.Put(owner, r.Response.ID, bytes.Clone(b)) // clone it to drop the unused capacity of b
	}
	if err == nil {
		return
	}
	r.Response.Store = false
	if !errors.Is(err, store.ErrTooLarge) {
		slog.Error("a response was not stored", "id", r.Response.ID, "reason", err)
	}
}

// items returns all items of a record, oldest first. It leaves out calls whose arguments were cut
// off, because they are useless.
func (r *record) items() []*inputItem {
	all := slices.Clone(r.Input)
	for _, o := range r.Response.Output {
		if !o.called() || o.Status == completed {
			all = append(all, o.input())
		}
	}
	return all
}

// input returns the item as an input item of a later request.
func (i *outputItem) input() *inputItem {
	in := &inputItem{Type: i.Type, ID: i.ID, CallID: i.CallID, Name: i.Name, Namespace: i.Namespace, Arguments: i.Arguments + i.Input}
	if i.Type == typeMessage {
		in.Role = "assistant"
	}
	if i.Encrypted != nil {
		in.encrypted = *i.Encrypted
	}
	texts := make([]string, len(i.Content))
	for k, p := range i.Content {
		texts[k] = p.Text
		in.parts = append(in.parts, inputPart{p.Type, p.Text})
	}
	in.Text = strings.Join(texts, "\n")
	return in
}

// history returns the items of the responses before q, oldest first. It replaces references in q by
// the items that they refer to.
func (s *Server) history(ctx context.Context, q *request) (earlier []*inputItem, err error) {
	var chain []*record
	for id := q.response.Previous; id != nil; {
		r, err := s.load(ctx, *id)
		if errors.Is(err, store.ErrNotFound) {
			return nil, &wire.Error{Kind: wire.NoPrevious, Field: "previous_response_id", Message: "Previous response with id '" + short(*id) + "' not found."}
		}
		if err != nil {
			return nil, err
		}
		chain = append(chain, r)
		id = r.Response.Previous
	}
	for _, r := range slices.Backward(chain) {
		earlier = append(earlier, r.items()...)
	}
	known := map[string]*inputItem{}
	for _, item := range earlier {
		known[item.ID] = item
	}
	for i, item := range q.items {
		if item.Type != typeReference {
			known[item.ID] = item
			continue
		}
		if q.items[i], err = s.referred(ctx, known, item.ID); err != nil {
			return nil, err
		}
		if q.items[i] == nil {
			return nil, wire.Invalidf(pathOf(i, "id"), "Item with id '%s' not found. Items are not kept when 'store' is false.", short(item.ID))
		}
	}
	return earlier, nil
}

// responsePrefix is the prefix of responses' ids.
const responsePrefix = "resp_"

var (
	responseID = regexp.MustCompile(`^resp_[a-z2-7]{26}$`)
	itemIDs    = regexp.MustCompile(`^[a-z]+_([a-z2-7]{26})_i?[0-9]+$`)
)

// referred returns the item of an id, from known or from a stored response, or nil if there is
// none.
func (s *Server) referred(ctx context.Context, known map[string]*inputItem, id string) (*inputItem, error) {
	if item := known[id]; item != nil {
		return item, nil
	}
	m := itemIDs.FindStringSubmatch(id)
	if m == nil {
		return nil, nil
	}
	r, err := s.load(ctx, responsePrefix+m[1])
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, item := range r.items() {
		known[item.ID] = item
	}
	return known[id], nil
}

// replay rebuilds a stored response. Its events are those of the first stream.
func (r *record) replay(send func(string, any) error) error {
	final := r.Response
	again := *final
	again.Status, again.Completed, again.Incomplete, again.Error, again.Usage, again.Output = inProgress, nil, nil, nil, nil, []*outputItem{}
	b := newBuilder(&again, r.Encrypt, send)
	if err := b.begin(); err != nil {
		return err
	}
	for i, item := range final.Output {
		if i >= len(r.Pieces) {
			break
		}
		if err := b.repeat(item, r.Pieces[i]); err != nil {
			return err
		}
	}
	again.take(final)
	return b.finish()
}

// repeat adds a stored item again.
func (b *builder) repeat(item *outputItem, p pieces) error {
	s := step{kind: stepArguments, custom: item.Type == typeCustomCall}
	content, probs := item.Arguments+item.Input, []json.RawMessage(nil)
	switch item.Type {
	case typeReasoning:
		s.kind = stepReasoning
	case typeMessage:
		s.kind = stepText
	case typeCall, typeCustomCall:
		if err := b.add(step{kind: stepCall, callID: item.CallID, callee: callee{item.Namespace, item.Name}, custom: s.custom}); err != nil {
			return err
		}
	}
	if len(item.Content) > 0 {
		content, probs = item.Content[0].Text, item.Content[0].LogProbs
	}
	if b.item == nil {
		if err := b.open(s); err != nil {
			return err
		}
	}
	for i, n := range p.Bytes {
		n = min(max(n, 0), len(content))
		s.text, content = content[:n], content[n:]
		s.probs = nil
		if i < len(p.Tokens) {
			k := min(max(p.Tokens[i], 0), len(probs))
			s.probs, probs = probs[:k], probs[k:]
		}
		if err := b.add(s); err != nil {
			return err
		}
	}
	return b.close(item.Status)
}
