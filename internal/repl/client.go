// Package repl is a chat in a terminal or a pipe with a server that speaks OpenAI's API.
//
// A [Client] sends requests. An [Input] reads lines from a terminal with editing and history, or from
// a pipe. A [Session] holds the conversation and runs the lines that start with a slash as commands.
package repl

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A Client sends requests to a server. Any goroutine may use it.
type Client struct {
	URL  string       // such as http://127.0.0.1:8000, without /v1
	Key  string       // "" sends none
	HTTP *http.Client // nil means http.DefaultClient
}

// A Message is one of a conversation.
type Message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content,omitempty"`
}

// A Delta is a piece of an answer. News is what the server says while it computes nothing yet, such as
// how far loading is.
type Delta struct{ Content, Reasoning, News string }

// Usage says how an answer was computed.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`

	First, Rest time.Duration `json:"-"` // until the first piece, and from there to the end
	Finish      string        `json:"-"` // such as stop or length
}

// Rate returns the tokens per second after the first, 0 if it is unknown.
func (u *Usage) Rate() float64 {
	if u.CompletionTokens < 2 || u.Rest <= 0 {
		return 0
	}
	return float64(u.CompletionTokens-1) / u.Rest.Seconds()
}

// A Model is one of GET /v1/models.
type Model struct {
	ID          string `json:"id"`
	Parent      string `json:"parent,omitempty"`
	MaxModelLen int    `json:"max_model_len,omitempty"`
	NoChat      string `json:"no_chat,omitempty"`
	Status      string `json:"status,omitempty"`
}

// Models lists the server's models.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	var list struct {
		Data []Model `json:"data"`
	}
	err := c.Get(ctx, "/v1/models", &list)
	return list.Data, err
}

// Get decodes the answer of GET path into v.
func (c *Client) Get(ctx context.Context, path string, v any) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := &io.LimitedReader{R: resp.Body, N: maxAnswer}
	switch err := json.NewDecoder(body).Decode(v); {
	case err != nil && body.N <= 0:
		return fmt.Errorf("%s%s: the answer is larger than %d bytes", c.URL, path, maxAnswer)
	case err != nil:
		return fmt.Errorf("%s%s: %w", c.URL, path, err)
	}
	return nil
}

// Limits of what a server may send.
const (
	maxAnswer = 64 << 20 // of GET
	maxEvent  = 16 << 20 // of a line of a stream
)

// do sends a request. An answer that is not 200 is an error with the server's message.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var failed struct {
		Error struct{ Message string }
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&failed) // another server may send anything
	if failed.Error.Message == "" {
		failed.Error.Message = fmt.Sprintf("%s%s: %s", c.URL, path, resp.Status)
	}
	if resp.StatusCode == http.StatusUnauthorized {
		failed.Error.Message += " Use --api-key KEY or HEFT_API_KEY."
	}
	return nil, errors.New(failed.Error.Message)
}

// Complete streams the answer to a conversation. params are further fields of the request. It calls on
// with each piece. When ctx ends, it returns ctx's error.
func (c *Client) Complete(ctx context.Context, model string, messages []Message, params map[string]any, on func(Delta)) (*Usage, error) {
	body := map[string]any{"stream": true, "stream_options": map[string]any{"include_usage": true}}
	for name, v := range params {
		body[name] = v
	}
	body["messages"] = messages
	if model != "" {
		body["model"] = model
	}
	begin := time.Now()
	resp, err := c.do(ctx, http.MethodPost, "/v1/chat/completions", body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := answer{begin: begin, on: on}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for !a.whole {
		if !lines.Scan() {
			switch err := lines.Err(); {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case errors.Is(err, bufio.ErrTooLong):
				return nil, fmt.Errorf("the server sent an event of more than %d bytes", maxEvent)
			default:
				return nil, fmt.Errorf("the connection broke off: %w", cmp.Or(err, io.ErrUnexpectedEOF))
			}
		}
		if err := a.take(lines.Text()); err != nil {
			return nil, err
		}
	}
	if !a.first.IsZero() {
		a.usage.First, a.usage.Rest = a.first.Sub(begin), time.Since(a.first)
	}
	return &a.usage, nil
}

// An answer is a stream that is read.
type answer struct {
	begin, first time.Time
	on           func(Delta)
	usage        Usage
	whole        bool
}

// chunk is the data of an event.
type chunk struct {
	Choices []struct {
		Delta struct {
			Content   string
			Reasoning string `json:"reasoning_content"`
		}
		Finish string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
	Error *struct{ Message string }
}

// take reads a line of the stream.
func (a *answer) take(line string) error {
	if news, ok := strings.CutPrefix(line, ": "); ok {
		a.on(Delta{News: news})
		return nil
	}
	data, ok := strings.CutPrefix(line, "data:")
	if !ok {
		return nil
	}
	if data = strings.TrimSpace(data); data == "[DONE]" {
		a.whole = true
		return nil
	}
	var c chunk
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		return fmt.Errorf("an event of the answer: %w", err)
	}
	if c.Error != nil {
		return errors.New(c.Error.Message)
	}
	if c.Usage != nil {
		a.usage.PromptTokens, a.usage.CompletionTokens = c.Usage.Prompt, c.Usage.Completion
	}
	for _, choice := range c.Choices {
		if a.first.IsZero() {
			a.first = time.Now()
		}
		if choice.Finish != "" {
			a.usage.Finish = choice.Finish
		}
		if d := (Delta{Content: choice.Delta.Content, Reasoning: choice.Delta.Reasoning}); d != (Delta{}) {
			a.on(d)
		}
	}
	return nil
}
