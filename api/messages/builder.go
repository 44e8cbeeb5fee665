package messages

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"hash"
	"strings"

	"github.com/heftai/heft/api/wire"
)

// Types of content blocks.
const (
	typeText     = "text"
	typeThinking = "thinking"
	typeToolUse  = "tool_use"
)

// reply is the message that answers a request.
type reply struct {
	ID           string   `json:"id"`
	Type         string   `json:"type"` // message
	Role         string   `json:"role"` // assistant
	Model        string   `json:"model"`
	Content      []*block `json:"content"`
	StopReason   *string  `json:"stop_reason"`
	StopSequence *string  `json:"stop_sequence"`
	Usage        usage    `json:"usage"`
}

// usage counts tokens. Tokens of the prompt are counted in Input, or in CacheRead if they were
// cached.
type usage struct {
	Input         int `json:"input_tokens"`
	CacheCreation int `json:"cache_creation_input_tokens"` // always 0: caching has no cost
	CacheRead     int `json:"cache_read_input_tokens"`
	Output        int `json:"output_tokens"`
}

// block is a content block of the answer.
type block struct {
	kind      string
	text      string // of text or thinking
	signature string // of thinking
	id, name  string // of a tool_use
	input     json.RawMessage
}

// MarshalJSON writes the fields that a block of its type has.
func (b *block) MarshalJSON() ([]byte, error) {
	switch b.kind {
	case typeThinking:
		return encode(struct {
			Type      string `json:"type"`
			Thinking  string `json:"thinking"`
			Signature string `json:"signature"`
		}{b.kind, b.text, b.signature})
	case typeToolUse:
		return encode(struct {
			Type  string          `json:"type"`
			ID    string          `json:"id"`
			Name  string          `json:"name"`
			Input json.RawMessage `json:"input"`
		}{b.kind, b.id, b.name, b.input})
	}
	return encode(struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{b.kind, b.text})
}

// Samples implements schema.Sampler.
func (b *block) Samples() []any {
	return []any{&block{kind: typeText}, &block{kind: typeThinking}, &block{kind: typeToolUse, input: json.RawMessage("{}")}}
}

// encode returns the JSON of v without HTML escapes.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	err := wire.Encode(&b, v)
	return b.Bytes(), err
}

// delta is new content of a block. One of its texts is set.
type delta struct {
	Type      string  `json:"type"`
	Text      *string `json:"text,omitzero"`
	Thinking  *string `json:"thinking,omitzero"`
	Partial   *string `json:"partial_json,omitzero"`
	Signature *string `json:"signature,omitzero"`
}

// The events of a stream. Each is sent under the name that is also its type.
type (
	messageStart struct {
		Type    string `json:"type"`
		Message *reply `json:"message"`
	}
	plainEvent struct {
		Type string `json:"type"`
	}
	blockStart struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Block *block `json:"content_block"`
	}
	blockDelta struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Delta delta  `json:"delta"`
	}
	blockStop struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	messageDelta struct {
		Type  string `json:"type"`
		Delta struct {
			StopReason   *string `json:"stop_reason"`
			StopSequence *string `json:"stop_sequence"`
		} `json:"delta"`
		Usage usage `json:"usage"`
	}
)

// A builder makes content blocks of the model's output. It sends them as events if it has a stream,
// and otherwise adds them to the reply. It is for use by one goroutine.
type builder struct {
	reply *reply
	out   *wire.Events // nil if there is no stream
	// hidden means that thinking has a signature, but no text.
	hidden bool

	open  *block // nil: none
	index int    // of the open block, or of the next one
	text  strings.Builder
	sum   hash.Hash // of the thinking
}

// send sends an event if there is a stream.
func (b *builder) send(name string, event any) error {
	if b.out == nil {
		return nil
	}
	return b.out.SendNamed(name, event)
}

// begin sends the message without content.
func (b *builder) begin() error {
	if err := b.send("message_start", &messageStart{"message_start", b.reply}); err != nil {
		return err
	}
	return b.send("ping", &plainEvent{"ping"})
}

// start closes the open block and opens a new one.
func (b *builder) start(n *block) error {
	if err := b.stop(); err != nil {
		return err
	}
	b.open = n
	b.text.Reset()
	switch n.kind {
	case typeThinking:
		b.sum = sha256.New()
	case typeToolUse:
		n.input = json.RawMessage("{}")
	}
	if b.out == nil {
		b.reply.Content = append(b.reply.Content, n)
	}
	return b.send("content_block_start", &blockStart{"content_block_start", b.index, n})
}

// say adds text to a block of a type. It opens one if necessary.
func (b *builder) say(kind, words string) error {
	if words == "" {
		return nil
	}
	if b.open == nil || b.open.kind != kind {
		if err := b.start(&block{kind: kind}); err != nil {
			return err
		}
	}
	if kind == typeThinking {
		b.sum.Write([]byte(words))
		if b.hidden {
			return nil
		}
	}
	if b.out == nil {
		b.text.WriteString(words)
		return nil
	}
	d := delta{}
	switch kind {
	case typeText:
		d.Type, d.Text = "text_delta", &words
	case typeThinking:
		d.Type, d.Thinking = "thinking_delta", &words
	case typeToolUse:
		d.Type, d.Partial = "input_json_delta", &words
	}
	return b.send("content_block_delta", &blockDelta{"content_block_delta", b.index, d})
}

// stop closes the open block, if there is one.
func (b *builder) stop() error {
	n := b.open
	if n == nil {
		return nil
	}
	b.open = nil
	switch n.kind {
	case typeText:
		n.text = b.text.String()
	case typeThinking:
		n.text, n.signature = b.text.String(), sign(b.sum)
		if err := b.send("content_block_delta", &blockDelta{"content_block_delta", b.index, delta{Type: "signature_delta", Signature: &n.signature}}); err != nil {
			return err
		}
	case typeToolUse:
		if input := b.text.String(); json.Valid([]byte(input)) { // otherwise the call was cut
			n.input = json.RawMessage(input)
		}
	}
	b.index++
	return b.send("content_block_stop", &blockStop{"content_block_stop", b.index - 1})
}

// sign returns the signature of thinking, which is derived from its text. The server does not check
// it: it accepts thinking with any signature.
func sign(sum hash.Hash) string {
	return "heft1:" + base64.StdEncoding.EncodeToString(sum.Sum(nil))
}

// end sends why the message has ended.
func (b *builder) end() error {
	if err := b.stop(); err != nil {
		return err
	}
	last := &messageDelta{Type: "message_delta", Usage: b.reply.Usage}
	last.Delta.StopReason, last.Delta.StopSequence = b.reply.StopReason, b.reply.StopSequence
	if err := b.send("message_delta", last); err != nil {
		return err
	}
	return b.send("message_stop", &plainEvent{"message_stop"})
}
