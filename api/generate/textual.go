package generate

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/heftai/heft/text"
)

// TextOptions are the options of text generation for Go programs. The zero value uses the model's
// own defaults and generates until the model ends its text.
type TextOptions struct {
	// Params say how tokens are chosen. nil means the model's defaults (generation_config.json),
	// which sample. &Params{} always chooses the most likely token.
	Params *Params
	// MaxTokens is the maximum number of generated tokens. 0 means the value of
	// generation_config.json, or as many as fit into the context.
	MaxTokens int
	Stop      []string // the text ends before the first of them
	Seed      uint64   // of the random choices: the same seed gives the same text
	// Constraint, if set, restricts the text, for example to a JSON document that satisfies a
	// schema.
	Constraint *Constraint
}

func (m *Model) request(o TextOptions) Request {
	params, most := m.Defaults()
	if o.Params != nil {
		params = *o.Params
	}
	if o.MaxTokens > 0 {
		most = o.MaxTokens
	}
	return Request{Param: "prompt", Params: params, MaxTokens: most, Trim: true, Stop: o.Stop, Seed: o.Seed, Constraint: o.Constraint}
}

// Complete returns the text that follows prompt. It is safe for concurrent use; concurrent calls
// share passes through the model. Errors are of type *wire.Error, or ctx's error.
func (m *Model) Complete(ctx context.Context, prompt string, o TextOptions) (string, error) {
	var b strings.Builder
	for piece, err := range m.Stream(ctx, prompt, o) {
		if err != nil {
			return b.String(), err
		}
		b.WriteString(piece)
	}
	return b.String(), nil
}

// Stream yields the text that follows prompt in pieces as it is generated. A piece never ends
// within a character. If there is an error, it is the last value. The request ends with the loop.
func (m *Model) Stream(ctx context.Context, prompt string, o TextOptions) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ids, err := m.EncodePrompt(ctx, prompt, true)
		if err != nil {
			yield("", AsError(err, "prompt"))
			return
		}
		r := m.request(o)
		r.Prompt, r.Continues = ids, true
		for d, err := range m.deltas(ctx, r) {
			if (err != nil || d.Text != "") && !yield(d.Text, err) {
				return
			}
		}
	}
}

// Reply returns the next message of a conversation: its content, reasoning and tool calls. For a
// tool loop, append the message and a [text.ToolResult] for each call, and call Reply again. Reply
// sets c.AddGenerationPrompt unless c continues its last message.
func (m *Model) Reply(ctx context.Context, c text.Conversation, o TextOptions) (text.Message, error) {
	message := text.Message{Role: "assistant"}
	for d, err := range m.StreamReply(ctx, c, o) {
		if err != nil {
			return message, err
		}
		message.Content += d.Text
		message.Reasoning += d.Reasoning
		for _, call := range d.Calls {
			if call.Index >= len(message.ToolCalls) {
				message.ToolCalls = append(message.ToolCalls, text.ToolCall{Name: call.Name})
			}
			t := &message.ToolCalls[call.Index]
			t.Arguments += call.Arguments
			if call.ID != "" {
				t.ID = call.ID
			}
		}
	}
	return message, nil
}

// StreamReply is [Model.Reply] in pieces. A delta has text, reasoning or parts of tool calls.
func (m *Model) StreamReply(ctx context.Context, c text.Conversation, o TextOptions) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		c.AddGenerationPrompt = c.ContinueFinalMessage == ""
		r := m.request(o)
		if err := m.Converse(ctx, Conversation{Conversation: c}, &r); err != nil {
			yield(Delta{}, err)
			return
		}
		m.deltas(ctx, r)(yield)
	}
}

// deltas yields the deltas of a request.
func (m *Model) deltas(ctx context.Context, r Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		run, err := m.Start(ctx, r)
		if err != nil {
			yield(Delta{}, err)
			return
		}
		defer run.Close()
		for {
			d, err := run.Next(ctx)
			if errors.Is(err, io.EOF) || !yield(d, err) || err != nil {
				return
			}
		}
	}
}
