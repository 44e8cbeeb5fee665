package openai

import (
	"math"
	"strconv"

	"github.com/heftai/heft/api/generate"
)

// usage counts the tokens of an answer.
type usage struct {
	Prompt     int            `json:"prompt_tokens"`
	Completion int            `json:"completion_tokens"`
	Total      int            `json:"total_tokens"`
	Details    *promptDetails `json:"prompt_tokens_details,omitzero"` // left out while the answer is made
	// Answer is there if a part of the answer is reasoning or was predicted.
	Answer *answerDetails `json:"completion_tokens_details,omitzero"`
}

type promptDetails struct {
	Cached int `json:"cached_tokens"`
}

type answerDetails struct {
	Reasoning int `json:"reasoning_tokens"`
	Accepted  int `json:"accepted_prediction_tokens,omitzero"`
	Rejected  int `json:"rejected_prediction_tokens,omitzero"`
}

func newUsage(u generate.Usage) *usage {
	out := &usage{Prompt: u.Prompt, Completion: u.Completion, Total: u.Prompt + u.Completion, Details: &promptDetails{u.Cached}}
	if u.Reasoning+u.AcceptedPrediction+u.RejectedPrediction > 0 {
		out.Answer = &answerDetails{u.Reasoning, u.AcceptedPrediction, u.RejectedPrediction}
	}
	return out
}

// leastLogProb stands for minus infinity, which JSON has no number for.
const leastLogProb = -9999

func logProb(p float32) float32 {
	if p < leastLogProb || math.IsNaN(float64(p)) {
		return leastLogProb
	}
	return p
}

// tokenNames says how log-probabilities call tokens: by their text, or as "token_id:N".
type tokenNames struct {
	model *generate.Model
	ids   bool
}

// text is what a token is called, with its bytes, and whether it is text by itself.
func (n tokenNames) text(id int32) (name string, bytes []byte, whole bool) {
	name, bytes, whole = n.model.TokenText(id)
	if n.ids {
		return "token_id:" + strconv.Itoa(int(id)), bytes, true
	}
	return name, bytes, whole
}

// completionLogProbs are those of /v1/completions: lists with an entry a token.
type completionLogProbs struct {
	Tokens  []string             `json:"tokens"`
	LogProb []*float32           `json:"token_logprobs"`
	Top     []map[string]float32 `json:"top_logprobs"`
	Offset  []int                `json:"text_offset"`
}

// add appends tokens whose text begins at offset. The first of a prompt has no
// log-probability.
func (l *completionLogProbs) add(n tokenNames, tokens []generate.Token, offset int, prompt bool) {
	for i, t := range tokens {
		l.Tokens = append(l.Tokens, legacyText(n, t.ID))
		l.Offset = append(l.Offset, offset+t.Offset)
		if prompt && i == 0 {
			l.LogProb = append(l.LogProb, nil)
			l.Top = append(l.Top, nil)
			continue
		}
		own := logProb(t.LogProb)
		l.LogProb = append(l.LogProb, &own)
		l.Top = append(l.Top, legacyTop(n, &t))
	}
}

// legacyTop are the likeliest ids at a token's place, and the token itself, by their texts.
func legacyTop(n tokenNames, t *generate.Token) map[string]float32 {
	top := make(map[string]float32, len(t.Top)+1)
	for _, p := range t.Top {
		if name := legacyText(n, p.ID); !has(top, name) { // the likelier of two with one text
			top[name] = logProb(p.LogProb)
		}
	}
	if name := legacyText(n, t.ID); !has(top, name) {
		top[name] = logProb(t.LogProb)
	}
	return top
}

func has(m map[string]float32, key string) bool { _, ok := m[key]; return ok }

// legacyText marks a token that is not a text by itself, as OpenAI does there.
func legacyText(n tokenNames, id int32) string {
	text, _, whole := n.text(id)
	if !whole {
		return "bytes:" + text
	}
	return text
}

// chatLogProbs are those of /v1/chat/completions.
type chatLogProbs struct {
	Content []chatToken `json:"content"`
	Refusal []chatToken `json:"refusal"` // always null
}

type chatToken struct {
	tokenLogProb
	Top []tokenLogProb `json:"top_logprobs"`
}

type tokenLogProb struct {
	Token   string  `json:"token"`
	LogProb float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func newChatLogProbs(n tokenNames, tokens []generate.Token) *chatLogProbs {
	l := &chatLogProbs{Content: make([]chatToken, len(tokens))}
	for i := range tokens {
		l.Content[i] = newChatToken(n, &tokens[i])
	}
	return l
}

func newChatToken(n tokenNames, t *generate.Token) chatToken {
	c := chatToken{tokenLogProb: newTokenLogProb(n, generate.LogProb{ID: t.ID, LogProb: t.LogProb}), Top: make([]tokenLogProb, len(t.Top))}
	for k, p := range t.Top {
		c.Top[k] = newTokenLogProb(n, p)
	}
	return c
}

// TokenLogProb is a token with its log-probability and the likeliest tokens at its place, as JSON has it in
// chat completions and responses.
func TokenLogProb(m *generate.Model, t *generate.Token) any {
	return newChatToken(tokenNames{model: m}, t)
}

func newTokenLogProb(n tokenNames, p generate.LogProb) tokenLogProb {
	text, raw, _ := n.text(p.ID)
	t := tokenLogProb{Token: text, LogProb: logProb(p.LogProb)}
	if raw != nil {
		t.Bytes = make([]int, len(raw))
		for i, b := range raw {
			t.Bytes[i] = int(b)
		}
	}
	return t
}

// ids are the ids of tokens, never nil.
func ids(tokens []generate.Token) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = t.ID
	}
	return out
}

// promptScores stands for the log-probabilities of a prompt, which are written token by token.
type promptScores struct{}

// promptToken is a token at a place of a prompt, as vLLM has it.
type promptToken struct {
	LogProb float32 `json:"logprob"`
	Rank    int     `json:"rank"` // 1 for the likeliest
	Text    string  `json:"decoded_token"`
}

// promptScores writes null for the first token of a prompt, and for each other an object of ids: the token itself and
// the top likeliest ones.
func (w *pieces) promptScores(m *generate.Model, top int, prompt []generate.Token) {
	names := tokenNames{model: m}
	_ = w.WriteByte('[')
	for i := range prompt {
		w.comma(i)
		if i == 0 {
			_, _ = w.WriteString("null")
			continue
		}
		t := &prompt[i]
		_ = w.WriteByte('{')
		w.promptToken(names, t.ID, t.LogProb, int(t.Rank))
		for k, p := range t.Top[:min(top, len(t.Top))] {
			if p.ID != t.ID {
				_ = w.WriteByte(',')
				w.promptToken(names, p.ID, p.LogProb, k+1)
			}
		}
		_ = w.WriteByte('}')
	}
	_ = w.WriteByte(']')
}

func (w *pieces) promptToken(n tokenNames, id int32, p float32, rank int) {
	text, _, _ := n.text(id)
	_, _ = w.WriteString(`"` + strconv.Itoa(int(id)) + `":`)
	_, _ = w.Write(w.encode(promptToken{logProb(p), rank, text}))
}
