package responses

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/heftai/heft/api/wire"
)

// encode returns the JSON of v without HTML escapes.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := wire.Encode(&b, v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// A step is new output of the model.
type step struct {
	kind stepKind
	text string
	// probs are the log-probabilities of the tokens of a piece of text, as JSON.
	probs  []json.RawMessage
	callID string // of a call that starts
	callee callee
	custom bool // the call is of a custom tool
}

type stepKind uint8

const (
	stepReasoning stepKind = iota + 1
	stepText
	stepCall      // a call starts
	stepArguments // of the call that has started
	stepBroken    // the call ends before its arguments are complete
)

// A builder builds a response and the events of a stream from steps. It is for use by one
// goroutine.
type builder struct {
	r *response
	// send sends an event. nil means that no client follows. Methods return its error, but build
	// the response in any case.
	send     func(name string, event any) error
	gone     error // error of send
	sequence int
	suffix   string // of the response's id; it is a part of the items' ids
	encrypt  bool   // reasoning items have encrypted_content

	item *outputItem // the open item; nil: none
	text strings.Builder
	// pieces are the lengths of each item's pieces, so that replay can rebuild it from the same
	// pieces.
	pieces []pieces
}

// pieces has the lengths of an item's pieces in bytes, and the number of log-probabilities of each.
type pieces struct {
	Bytes  []int `json:"bytes"`
	Tokens []int `json:"tokens,omitzero"`
}

func newBuilder(r *response, encrypt bool, send func(string, any) error) *builder {
	return &builder{r: r, send: send, suffix: strings.TrimPrefix(r.ID, responsePrefix), encrypt: encrypt}
}

// begin sends the events that the response was created and is in progress.
func (b *builder) begin() error {
	_ = b.lifecycle("response.created") // an error stays until the next event
	return b.lifecycle("response.in_progress")
}

func (b *builder) lifecycle(name string) error {
	return b.event(name, &lifecycleEvent{Response: b.r})
}

// event numbers an event and sends it.
func (b *builder) event(name string, e numbered) error {
	e.number(name, b.sequence)
	b.sequence++
	if b.gone != nil || b.send == nil {
		return b.gone
	}
	b.gone = b.send(name, e)
	return b.gone
}

// add adds a step to the open item, or opens an item for it.
func (b *builder) add(s step) error {
	if s.kind == stepBroken {
		return b.close(incomplete)
	}
	if b.item == nil || s.kind == stepCall || b.item.Type != s.itemType() {
		_ = b.close(completed) // an error stays until the next event
		_ = b.open(s)
	}
	if s.kind == stepCall || s.text == "" && len(s.probs) == 0 {
		return b.gone
	}
	b.text.WriteString(s.text)
	last := &b.pieces[len(b.pieces)-1]
	last.Bytes = append(last.Bytes, len(s.text))
	i := len(b.r.Output) - 1
	switch s.kind {
	case stepArguments:
		if s.custom {
			return b.event("response.custom_tool_call_input.delta", &inputDelta{itemEvent: b.at(), Delta: s.text})
		}
		return b.event("response.function_call_arguments.delta", &argumentsDelta{itemEvent: b.at(), Delta: s.text})
	case stepReasoning:
		return b.event("response.reasoning_text.delta", &reasoningDelta{partEvent: b.atPart(), Delta: s.text})
	}
	p := &b.r.Output[i].Content[0]
	p.LogProbs = append(p.LogProbs, s.probs...)
	if len(s.probs) > 0 || last.Tokens != nil {
		for len(last.Tokens) < len(last.Bytes)-1 {
			last.Tokens = append(last.Tokens, 0)
		}
		last.Tokens = append(last.Tokens, len(s.probs))
	}
	return b.event("response.output_text.delta", &textDelta{partEvent: b.atPart(), Delta: s.text, LogProbs: list(s.probs)})
}

// itemType returns the type of the items that consist of such steps.
func (s *step) itemType() string {
	switch s.kind {
	case stepReasoning:
		return typeReasoning
	case stepText:
		return typeMessage
	}
	if s.custom {
		return typeCustomCall
	}
	return typeCall
}

// prefixes are the prefixes of items' ids by type.
var prefixes = map[string]string{typeMessage: "msg_", typeReasoning: "rs_", typeCall: "fc_", typeOutput: "fco_", typeCustomCall: "ctc_", typeCustomOutput: "ctco_"}

// itemID returns the id of an item, made of its type, its response and its place there.
func itemID(kind, suffix, place string) string { return prefixes[kind] + suffix + "_" + place }

// open starts an item.
func (b *builder) open(s step) error {
	kind := s.itemType()
	b.item = &outputItem{Type: kind, ID: itemID(kind, b.suffix, strconv.Itoa(len(b.r.Output))), Status: inProgress, CallID: s.callID, Name: s.callee.name, Namespace: s.callee.namespace}
	b.r.Output = append(b.r.Output, b.item)
	b.pieces = append(b.pieces, pieces{Bytes: []int{}})
	b.text.Reset()
	added := b.event("response.output_item.added", &itemAdded{OutputIndex: len(b.r.Output) - 1, Item: b.item})
	if b.item.called() {
		return added
	}
	p := part{Type: outputText}
	if kind == typeReasoning {
		p.Type = reasoningText
	}
	b.item.Content = []part{p}
	return b.event("response.content_part.added", &partAdded{partEvent: b.atPart(), Part: p})
}

// close ends the open item, if there is one.
func (b *builder) close(status string) error {
	if b.item == nil {
		return nil
	}
	item := b.item
	b.closeContent(item, b.text.String())
	item.Status = status
	err := b.event("response.output_item.done", &itemAdded{OutputIndex: len(b.r.Output) - 1, Item: item})
	b.item = nil
	return err
}

// closeContent sends the whole text of an item. Errors are kept until the next event.
func (b *builder) closeContent(item *outputItem, text string) {
	if item.called() {
		item.setInput(text)
	}
	switch item.Type {
	case typeCustomCall:
		_ = b.event("response.custom_tool_call_input.done", &inputDone{itemEvent: b.at(), Input: text})
		return
	case typeCall:
		_ = b.event("response.function_call_arguments.done", &argumentsDone{itemEvent: b.at(), Name: item.Name, Arguments: text})
		return
	}
	p := &item.Content[0]
	p.Text = text
	if item.Type == typeReasoning {
		if b.encrypt {
			item.Encrypted = orNull(sealReasoning(text))
		}
		_ = b.event("response.reasoning_text.done", &reasoningDone{partEvent: b.atPart(), Text: text})
	} else {
		_ = b.event("response.output_text.done", &textDone{partEvent: b.atPart(), Text: text, LogProbs: list(p.LogProbs)})
	}
	_ = b.event("response.content_part.done", &partAdded{partEvent: b.atPart(), Part: *p})
}

// peek adds the text of the open item to the response. No step may follow.
func (b *builder) peek() {
	switch {
	case b.item == nil:
	case b.item.called():
		b.item.setInput(b.text.String())
	default:
		b.item.Content[0].Text = b.text.String()
	}
}

// end ends the open item. The response's status must be set before. A completed response without
// output gets an empty message.
func (b *builder) end() error {
	if len(b.r.Output) == 0 && b.r.Status == completed {
		_ = b.open(step{kind: stepText}) // an error stays until the next event
	}
	status := completed
	if b.r.Status != completed {
		status = incomplete
	}
	return b.close(status)
}

// finish calls end and last.
func (b *builder) finish() error {
	_ = b.end() // an error stays until the next event
	return b.last()
}

// last sends the event that says how the response ended.
func (b *builder) last() error {
	switch b.r.Status {
	case completed:
		return b.lifecycle("response.completed")
	case failed:
		_ = b.event("error", &errorEvent{Code: &b.r.Error.Code, Message: b.r.Error.Message}) // see above
		return b.lifecycle("response.failed")
	}
	return b.lifecycle("response.incomplete")
}

// The encrypted_content of reasoning is the encoded text itself. It hides nothing from the client,
// which has the text anyway. It lets clients that keep no other part of reasoning items send the
// text back.
const sealed = "heft1:"

func sealReasoning(text string) string {
	return sealed + base64.StdEncoding.EncodeToString([]byte(text))
}

func unsealReasoning(s string) (string, bool) {
	s, ok := strings.CutPrefix(s, sealed)
	b, err := base64.StdEncoding.DecodeString(s)
	return string(b), ok && err == nil
}
