package openai

import (
	"strconv"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/openaijson"
)

// usage counts the tokens of an answer.
type usage struct {
	Prompt     int            `json:"prompt_tokens"`
	Completion int            `json:"completion_tokens"`
	Total      int            `json:"total_tokens"`
	Details    *promptDetails `json:"prompt_tokens_details,omitzero"` // omitted in running usage
	// Answer is set if a part of the answer is reasoning or was predicted.
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

// completionLogProbs are those of /v1/completions: lists with one entry per token.
type completionLogProbs struct {
	Tokens  []string             `json:"tokens"`
	LogProb []*float32           `json:"token_logprobs"`
	Top     []map[string]float32 `json:"top_logprobs"`
	Offset  []int                `json:"text_offset"`
}

// add appends tokens whose text starts at offset. The first token of a prompt has no
// log-probability.
func (l *completionLogProbs) add(n openaijson.TokenNames, tokens []generate.Token, offset int, prompt bool) {
	for i, t := range tokens {
		l.Tokens = append(l.Tokens, legacyText(n, t.ID))
		l.Offset = append(l.Offset, offset+t.Offset)
		if prompt && i == 0 {
			l.LogProb = append(l.LogProb, nil)
			l.Top = append(l.Top, nil)
			continue
		}
		own := openaijson.Finite(t.LogProb)
		l.LogProb = append(l.LogProb, &own)
		l.Top = append(l.Top, legacyTop(n, &t))
	}
}

// legacyTop returns the log-probabilities of the alternative tokens and of the token itself, by
// their texts.
func legacyTop(n openaijson.TokenNames, t *generate.Token) map[string]float32 {
	top := make(map[string]float32, len(t.Top)+1)
	for _, p := range t.Top {
		if name := legacyText(n, p.ID); !has(top, name) { // of two tokens with the same text the more likely one
			top[name] = openaijson.Finite(p.LogProb)
		}
	}
	if name := legacyText(n, t.ID); !has(top, name) {
		top[name] = openaijson.Finite(t.LogProb)
	}
	return top
}

func has(m map[string]float32, key string) bool { _, ok := m[key]; return ok }

// legacyText returns a token's text. It marks a token that is no valid text by itself as OpenAI
// does in this endpoint.
func legacyText(n openaijson.TokenNames, id int32) string {
	text, _, whole := n.Name(id)
	if !whole {
		return "bytes:" + text
	}
	return text
}

// chatLogProbs are those of /v1/chat/completions.
type chatLogProbs struct {
	Content []openaijson.Token `json:"content"`
	Refusal []openaijson.Token `json:"refusal"` // always null
}

func newChatLogProbs(n openaijson.TokenNames, tokens []generate.Token) *chatLogProbs {
	l := &chatLogProbs{Content: make([]openaijson.Token, len(tokens))}
	for i := range tokens {
		l.Content[i] = openaijson.NewToken(n, &tokens[i])
	}
	return l
}

// ids returns the ids of tokens. The result is never nil.
func ids(tokens []generate.Token) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = t.ID
	}
	return out
}

// promptScores is a placeholder for the log-probabilities of a prompt, which are written token by
// token.
type promptScores struct{}

// promptToken is a token at a position of a prompt, in vLLM's form.
type promptToken struct {
	LogProb float32 `json:"logprob"`
	Rank    int     `json:"rank"` // 1 for the most likely
	Text    string  `json:"decoded_token"`
}

// promptScores writes a list with one element per token of the prompt: null for the first, and for
// each other an object by id with the token itself and the top most likely ones.
func (w *pieces) promptScores(m *generate.Model, top int, prompt []generate.Token) {
	names := openaijson.TokenNames{Model: m}
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

func (w *pieces) promptToken(n openaijson.TokenNames, id int32, p float32, rank int) {
	text, _, _ := n.Name(id)
	_, _ = w.WriteString(`"` + strconv.Itoa(int(id)) + `":`)
	_, _ = w.Write(w.encode(promptToken{openaijson.Finite(p), rank, text}))
}
