package openai

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"net/http"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/foreign"
	"github.com/heftai/heft/api/wire"
)

// tokens is the response of vLLM's POST /tokenize.
type tokens struct {
	Count       int      `json:"count"`
	MaxModelLen int      `json:"max_model_len"`
	Tokens      []int32  `json:"tokens"`
	Strings     []string `json:"token_strs"` // null unless requested
}

// Tokenize serves POST /tokenize. It encodes a prompt, or messages.
func (s *Server) Tokenize(w http.ResponseWriter, r *http.Request) {
	t, err := s.tokenize(r)
	reply(w, t, err)
}

func (s *Server) tokenize(r *http.Request) (t *tokens, err error) {
	err = s.read(r, func(ctx context.Context, f *wire.Fields, m *generate.Model) (err error) {
		t, err = tokenize(ctx, f, m)
		return err
	})
	return t, err
}

// answerBytes is the approximate memory of a token in the responses of /tokenize and /detokenize:
// its id or text, and JSON. Its name takes nameBytes more.
const answerBytes, nameBytes = 32, 64

func tokenize(ctx context.Context, f *wire.Fields, m *generate.Model) (*tokens, error) {
	var names bool
	f.Bool("return_token_strs", &names)
	list, param, err := tokenizePrompt(ctx, f, m)
	if err != nil {
		return nil, generate.AsError(err, param)
	}
	bytes := answerBytes
	if names {
		bytes += nameBytes
	}
	if err := wire.ClaimOf(ctx).Keep(len(list) * bytes); err != nil {
		return nil, err
	}
	t := &tokens{Count: len(list), MaxModelLen: m.Limit(), Tokens: append([]int32{}, list...)}
	if names {
		t.Strings = make([]string, len(list))
		for i, id := range list {
			t.Strings[i], _ = m.Tokenizer.Token(id)
		}
	}
	return t, f.Err()
}

func tokenizePrompt(ctx context.Context, f *wire.Fields, m *generate.Model) (list []int32, param string, err error) {
	foreign.Refuse(f, foreign.Tokenize)
	most := decodeTruncation(f, m)
	if f.Describes() {
		decodeConversation(f, m)
		f.Optional("messages")
	} else if f.Has("messages") {
		if f.Has("prompt") {
			f.Fail("messages", "'prompt' and {} exclude each other.")
		}
		conversation := decodeConversation(f, m)
		if f.Err() != nil {
			return nil, "messages", f.Err()
		}
		text, err := m.Render(*conversation)
		if err == nil {
			list, err = encodeLast(ctx, m, text, conversation.AddSpecial, most)
		}
		return list, "messages", err
	}
	special, text := true, ""
	f.Bool("add_special_tokens", &special)
	if f.String("prompt", &text); !f.Has("prompt") {
		f.Fail("prompt", "Missing required parameter: 'prompt' or 'messages'.")
	}
	if f.Err() != nil {
		return nil, "prompt", f.Err()
	}
	list, err = encodeLast(ctx, m, text, special, most)
	return list, "prompt", err
}

// encodeLast encodes a text of any length, or the last tokens of a prompt.
func encodeLast(ctx context.Context, m *generate.Model, text string, special bool, most int) ([]int32, error) {
	if most == 0 {
		return m.Encode(ctx, text, special)
	}
	return m.EncodeLast(ctx, text, special, most)
}

// detokenized is the response of vLLM's POST /detokenize.
type detokenized struct {
	Prompt string `json:"prompt"`
}

// Detokenize serves POST /detokenize. It decodes ids. An id that the tokenizer does not have is an
// error, because the text without it would be wrong.
func (s *Server) Detokenize(w http.ResponseWriter, r *http.Request) {
	d, err := s.detokenize(r)
	reply(w, d, err)
}

func (s *Server) detokenize(r *http.Request) (d *detokenized, err error) {
	err = s.read(r, func(ctx context.Context, f *wire.Fields, m *generate.Model) (err error) {
		d, err = detokenize(ctx, f, m)
		return err
	})
	return d, err
}

func detokenize(ctx context.Context, f *wire.Fields, m *generate.Model) (*detokenized, error) {
	foreign.Refuse(f, foreign.Detokenize)
	var list []int32
	if f.IDs("tokens", &list, math.MaxInt32); list == nil {
		f.Fail("tokens", "Missing required parameter: 'tokens'.")
	}
	if f.Err() != nil {
		return nil, f.Err()
	}
	if m.Tokenizer == nil {
		return nil, wire.Invalidf("tokens", "The model %s has no tokenizer.", m.Name)
	}
	for i, id := range list {
		if _, known := m.Tokenizer.Token(id); !known {
			return nil, wire.Invalidf("tokens", "Invalid value for 'tokens': tokens[%d] is %d, which is not a token of %s.", i, id, m.Name)
		}
	}
	if err := wire.ClaimOf(ctx).Keep(len(list) * answerBytes); err != nil {
		return nil, err
	}
	return &detokenized{m.Tokenizer.Decode(list, false)}, nil
}

// ApplyTemplate serves llama.cpp's POST /apply-template. It renders messages as the text of the
// prompt.
func (s *Server) ApplyTemplate(w http.ResponseWriter, r *http.Request) {
	var d detokenized
	err := s.read(r, func(ctx context.Context, f *wire.Fields, m *generate.Model) error {
		foreign.Refuse(f, foreign.Template)
		conversation := decodeConversation(f, m)
		if f.Err() != nil {
			return f.Err()
		}
		prompt, err := m.Render(*conversation)
		if err != nil {
			return err
		}
		d.Prompt = prompt
		return wire.ClaimOf(ctx).Keep(generate.TextBytes * len(prompt))
	})
	reply(w, d, err)
}

// usualClass is the class of tokenizers whose config names none.
const usualClass = `"PreTrainedTokenizerFast"`

// TokenizerInfo serves vLLM's GET /tokenizer_info: the tokenizer_config.json of the first model.
func (s *Server) TokenizerInfo(w http.ResponseWriter, r *http.Request) {
	var config map[string]json.RawMessage
	m, err := s.models.Use(r.Context(), "")
	if err == nil {
		config, err = m.TokenizerConfig()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		respond(w, &wire.Error{Kind: wire.NotFound, Message: "The model " + m.Name + " has no tokenizer_config.json."})
		return
	case err != nil:
		respond(w, err)
		return
	}
	if config["tokenizer_class"] == nil {
		config["tokenizer_class"] = json.RawMessage(usualClass)
	}
	bytes := 0
	for _, v := range config {
		bytes += generate.TextBytes * len(v)
	}
	reply(w, config, wire.ClaimOf(r.Context()).Keep(bytes))
}
