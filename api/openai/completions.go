package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/foreign"
	"github.com/heftai/heft/api/internal/settings"
	"github.com/heftai/heft/api/wire"
)

// maxPrompts is the maximum number of prompts of a request.
const maxPrompts = 1024

// completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	common
	prompts []generate.Request // one per prompt
	texts   []string           // of the prompts, for echo
	echo    bool
	echoed  bool // logprobs include those of the prompt
}

// completionChoice is a choice of an answer, or new output of one in a stream.
type completionChoice struct {
	Index     int                 `json:"index"`
	Text      string              `json:"text"`
	LogProbs  *completionLogProbs `json:"logprobs"`
	Finish    *string             `json:"finish_reason"`
	TokenIDs  []int32             `json:"token_ids,omitzero"`
	PromptIDs []int32             `json:"prompt_token_ids,omitzero"`
	Scores    *promptScores       `json:"prompt_logprobs,omitzero"`
}

// Completions serves POST /v1/completions.
func (s *Server) Completions(w http.ResponseWriter, r *http.Request) {
	answer(s, w, r, decodeCompletion)
}

func decodeCompletion(ctx context.Context, f *wire.Fields, m *generate.Model) (*completionRequest, error) {
	const usualTokens = 16
	q := &completionRequest{common: decodeCommon(f, m, "cmpl-")}
	q.Param, q.Continues = "prompt", true
	if _, given := f.Raw("max_tokens"); !given {
		q.MaxTokens, q.Trim = usualTokens, true
	}
	f.Integer("max_tokens", &q.MaxTokens, 0, 1<<31-1)
	f.Bool("echo", &q.echo)
	if _, given := f.Raw("logprobs"); given || f.Describes() {
		f.Integer("logprobs", &q.TopLogProbs, 0, maxLogProbs)
		q.LogProbs, q.PromptLogProbs = true, q.echo
		q.TopPrompt = q.TopLogProbs
	}
	q.echoed = q.PromptLogProbs
	q.decodePromptLogProbs(f)
	special := true
	f.Bool("add_special_tokens", &special)
	q.Constraint = decodeConstraint(f)
	q.ReasoningBudget = settings.DecodeReasoningBudget(f, nil, nil)
	foreign.Refuse(f, foreign.Completions)
	if q.Truncate == 0 {
		f.FailWith(m.CheckIDs(f, "prompt"))
	}
	f.Like("prompt", "", []string{}, []int32{}, [][]int32{})
	raw, ok := f.Raw("prompt")
	if !ok {
		f.Fail("prompt", "Missing required parameter: 'prompt'.")
	}
	if f.Err() != nil {
		return nil, f.Err()
	}
	if err := m.Constrain(ctx, &q.Request); err != nil {
		return nil, err
	}
	return q, q.decodePrompts(ctx, raw, special)
}

// decodePrompts reads a string, strings, ids or lists of ids.
func (q *completionRequest) decodePrompts(ctx context.Context, raw json.RawMessage, special bool) error {
	texts, lists, ok := promptsOf(raw)
	if !ok {
		return wire.Invalidf("prompt", "Invalid type for 'prompt': expected a string, a list of strings, a list of token ids or a list of such lists.")
	}
	if n := len(texts) + len(lists); n == 0 || n > maxPrompts {
		return wire.Invalidf("prompt", "Invalid value for 'prompt': %d prompts, expected 1 to %d.", n, maxPrompts)
	}
	if err := generate.KeepIDs(ctx, lists); err != nil {
		return err
	}
	for _, t := range texts {
		list, err := q.model.EncodeLast(ctx, t, special, q.Truncate)
		if err != nil {
			return generate.AsError(err, "prompt")
		}
		lists = append(lists, list)
	}
	for _, list := range lists {
		r := q.Request
		r.Prompt = lastOf(list, q.Truncate)
		q.prompts = append(q.prompts, r)
	}
	if q.echo {
		q.echoTexts(texts)
	}
	return wire.ClaimOf(ctx).Keep(q.echoBytes())
}

// promptsOf distinguishes the forms of a prompt. An empty list is a list of no prompts.
func promptsOf(raw json.RawMessage) (texts []string, lists [][]int32, ok bool) {
	switch first := firstElement(raw); {
	case bytes.HasPrefix(bytes.TrimSpace(raw), []byte(`"`)):
		var text string
		err := json.Unmarshal(raw, &text)
		return []string{text}, nil, err == nil
	case first == 0: // an empty list, or not a list
		return nil, nil, json.Unmarshal(raw, &lists) == nil
	case first == '"':
		var several []*string // nil for null
		if json.Unmarshal(raw, &several) != nil || slices.Contains(several, nil) {
			return nil, nil, false
		}
		for _, t := range several {
			texts = append(texts, *t)
		}
		return texts, nil, true
	case bytes.Contains(raw, []byte("null")): // Go decodes null as 0
		return nil, nil, false
	case first == '[':
		err := json.Unmarshal(raw, &lists)
		return nil, lists, err == nil
	}
	var ids []int32
	err := json.Unmarshal(raw, &ids)
	return nil, [][]int32{ids}, err == nil
}

// firstElement returns the first byte of a list's first element, or 0 if raw is an empty list or
// not a list.
func firstElement(raw json.RawMessage) byte {
	list, ok := bytes.CutPrefix(bytes.TrimSpace(raw), []byte("["))
	if list = bytes.TrimLeft(list, " \t\r\n"); !ok || list[0] == ']' {
		return 0
	}
	return list[0]
}

// echoTexts stores the text before each answer: the prompt as the client sent it, or decoded.
func (q *completionRequest) echoTexts(texts []string) {
	for i, p := range q.prompts {
		switch {
		case texts != nil:
			q.texts = append(q.texts, texts[i])
		case q.model.Tokenizer != nil:
			q.texts = append(q.texts, q.model.Tokenizer.Decode(p.Prompt, !q.ShowSpecial))
		default:
			q.texts = append(q.texts, "")
		}
	}
}

// The bytes of a prompt's token, and of each alternative token, in a chunk that shows
// log-probabilities.
const echoTokenBytes, echoTopBytes = 300, 120

// echoBytes returns the memory of the prompts that are shown before the answers.
func (q *completionRequest) echoBytes() int {
	n := 0
	for _, text := range q.texts {
		n += generate.TextBytes * len(text)
	}
	if q.echoed && q.Stream {
		for _, p := range q.prompts {
			n += len(p.Prompt) * (echoTokenBytes + echoTopBytes*q.TopPrompt)
		}
	}
	return n
}

// before returns the text that choice i starts with.
func (q *completionRequest) before(i int) string {
	if !q.echo {
		return ""
	}
	return q.texts[i/q.N]
}

func (q *completionRequest) requests() []generate.Request { return q.prompts }

// typeCompletion is the object of answers and chunks.
const typeCompletion = "text_completion"

func (q *completionRequest) answer(ctx context.Context, runs *generate.Generations) (sender, error) {
	answers, err := q.collect(ctx, runs, len(q.prompts)*q.N, nil)
	if err != nil {
		return nil, err
	}
	out := &whole[completionChoice]{body: body[completionChoice]{envelope: q.envelope(typeCompletion), Usage: newUsage(runs.Usage())}}
	if q.LogProbs {
		out.logProbs = func(w *pieces, i int) {
			w.completionLogProbs(q.names(), q.echoedTokens(answers[i].prompt), answers[i].tokens, utf8.RuneCountInString(q.before(i)))
		}
	}
	if q.scores {
		out.promptScores = func(w *pieces, i int) { w.promptScores(q.model, q.top, answers[i].prompt) }
	}
	for i := range answers {
		a := &answers[i]
		c := completionChoice{Index: i, Text: q.before(i) + a.text.String(), Finish: &a.finish}
		if q.ReturnIDs {
			c.TokenIDs, c.PromptIDs = ids(a.tokens), q.prompts[i/q.N].Prompt
		}
		if q.scores {
			c.Scores = &promptScores{}
		}
		out.Choices = append(out.Choices, c)
	}
	return out, nil
}

// echoedTokens returns the tokens of the prompt that logprobs start with.
func (q *completionRequest) echoedTokens(prompt []generate.Token) []generate.Token {
	if !q.echoed {
		return nil
	}
	if q.TopPrompt == q.TopLogProbs {
		return prompt
	}
	list := slices.Clone(prompt)
	for i := range list {
		list[i].Top = list[i].Top[:min(len(list[i].Top), q.TopLogProbs)]
	}
	return list
}

func (q *completionRequest) logProbs(i int, prompt, tokens []generate.Token) *completionLogProbs {
	l := &completionLogProbs{Tokens: []string{}, LogProb: []*float32{}, Top: []map[string]float32{}, Offset: []int{}}
	l.add(q.names(), prompt, 0, true)
	l.add(q.names(), tokens, utf8.RuneCountInString(q.before(i)), false)
	return l
}

// completionStream sends one answer in chunks.
type completionStream struct {
	*completionRequest
	chunks[completionChoice]
	begun []bool // of each choice
}

func (q *completionRequest) stream(out *wire.Events) stream {
	return &completionStream{q, newChunks[completionChoice](&q.common, typeCompletion, out, q.requests()), make([]bool, len(q.prompts)*q.N)}
}

// part implements stream.
func (s *completionStream) part(p generate.PromptDelta) error {
	s.count(&p)
	i := p.PromptIndex*s.N + p.Choice
	c := completionChoice{Index: i, Text: p.Text}
	first := !s.begun[i]
	s.begun[i] = true
	if first {
		c.Text = s.before(i) + c.Text
	}
	if s.LogProbs && len(p.Tokens)+len(p.Prompt) > 0 {
		c.LogProbs = s.logProbs(i, p.Prompt, p.Tokens)
	}
	if s.ReturnIDs {
		c.TokenIDs = ids(p.Tokens)
		if first {
			c.PromptIDs = s.prompts[p.PromptIndex].Prompt
		}
	}
	if c.Text != "" || c.LogProbs != nil || len(c.TokenIDs) > 0 || c.PromptIDs != nil {
		if err := s.send(c); err != nil {
			return err
		}
	}
	if p.Finish == "" {
		return nil
	}
	finish := string(p.Finish)
	return s.send(completionChoice{Index: i, Finish: &finish})
}
