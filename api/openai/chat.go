package openai

import (
	"context"
	"net/http"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/internal/foreign"
	"github.com/heftai/heft/api/wire"
)

// chatRequest is the body of POST /v1/chat/completions.
type chatRequest struct {
	common
	thought bool   // show reasoning
	single  bool   // drop all calls after the first
	expects string // the predicted answer
	named   bool   // tool_choice names a function
}

// chatChoice is a choice of a response that is sent at once.
type chatChoice struct {
	Index     int           `json:"index"`
	Message   chatMessage   `json:"message"`
	LogProbs  *chatLogProbs `json:"logprobs"`
	Finish    string        `json:"finish_reason"`
	TokenIDs  []int32       `json:"token_ids,omitzero"`
	PromptIDs []int32       `json:"prompt_token_ids,omitzero"`
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content *string `json:"content"` // null if there are calls and nothing else
	Refusal *string `json:"refusal"` // always null
	thoughts
	Calls []toolCall `json:"tool_calls,omitzero"`
}

// thoughts are an answer's reasoning, under two names: that of most servers and that of newer ones.
type thoughts struct {
	ReasoningContent string `json:"reasoning_content,omitzero"`
	Reasoning        string `json:"reasoning,omitzero"`
}

// chatChunkChoice is new output of a choice.
type chatChunkChoice struct {
	Index     int           `json:"index"`
	Delta     chatDelta     `json:"delta"`
	LogProbs  *chatLogProbs `json:"logprobs"`
	Finish    *string       `json:"finish_reason"`
	TokenIDs  []int32       `json:"token_ids,omitzero"`
	PromptIDs []int32       `json:"prompt_token_ids,omitzero"`
}

type chatDelta struct {
	Role    string  `json:"role,omitzero"`
	Content *string `json:"content,omitzero"`
	thoughts
	Calls []toolCallDelta `json:"tool_calls,omitzero"`
}

// ChatCompletions serves POST /v1/chat/completions.
func (s *Server) ChatCompletions(w http.ResponseWriter, r *http.Request) { answer(s, w, r, decodeChat) }

func decodeChat(ctx context.Context, f *wire.Fields, m *generate.Model) (*chatRequest, error) {
	q := &chatRequest{common: decodeCommon(f, m, "chatcmpl-"), thought: true}
	q.Param, q.Trim = "messages", true
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		if _, given := f.Raw(name); given || f.Describes() {
			q.Trim = false
			f.Integer(name, &q.MaxTokens, 1, 1<<31-1)
		}
	}
	f.Bool("logprobs", &q.LogProbs)
	f.Integer("top_logprobs", &q.TopLogProbs, 0, maxLogProbs)
	if q.TopLogProbs > 0 && !q.LogProbs {
		f.Fail("top_logprobs", "'top_logprobs' has a meaning only with 'logprobs': true.")
	}
	q.decodePromptLogProbs(f)
	f.Bool("include_reasoning", &q.thought)
	reasoning := q.decodeReasoning(f)
	parallel := true
	f.Bool("parallel_tool_calls", &parallel)
	q.single = !parallel
	q.Constraint = decodeConstraint(f)
	q.expects = decodePrediction(f)
	foreign.Refuse(f, foreign.Chat)
	conversation := decodeConversation(f, m)
	if f.Err() != nil {
		return nil, f.Err()
	}
	reasoning.apply(conversation)
	conversation.SingleCall, q.named = q.single, conversation.Tool != ""
	if err := m.Converse(ctx, *conversation, &q.Request); err != nil {
		return nil, err
	}
	if q.expects != "" && m.Tokenizer != nil {
		var err error
		if q.Prediction, err = m.EncodePrediction(ctx, q.expects, "prediction"); err != nil {
			return nil, err
		}
	}
	return q, m.Constrain(ctx, &q.Request)
}

// decodePrediction reads prediction: the text, or parts of a text, that the answer is expected to
// resemble.
func decodePrediction(f *wire.Fields) (expected string) {
	p, ok := f.Object("prediction")
	if !ok {
		return ""
	}
	kind := "content"
	if p.String("type", &kind); kind != "content" {
		p.Fail("type", "Invalid value for {}: the type is content.")
	}
	if raw, given := p.Raw("content"); given && raw[0] == '[' {
		var all strings.Builder
		p.Objects("content", "a list of parts", func(_ int, part *wire.Fields) bool {
			kind, words := "text", ""
			part.String("type", &kind)
			if part.String("text", &words); kind != "text" {
				part.Fail("type", "Invalid value for {}: parts of a prediction are text.")
			}
			all.WriteString(words)
			return f.Work(len(words))
		})
		return all.String()
	}
	p.String("content", &expected)
	return expected
}

func (q *chatRequest) requests() []generate.Request { return []generate.Request{q.Request} }

func (q *chatRequest) answer(ctx context.Context, runs *generate.Generations) (sender, error) {
	answers, err := q.collect(ctx, runs, q.N, q.edit)
	if err != nil {
		return nil, err
	}
	out := &whole[chatChoice]{body: body[chatChoice]{envelope: q.envelope("chat.completion"), Usage: newUsage(runs.Usage())}}
	if q.LogProbs {
		out.logProbs = func(w *pieces, i int) { w.chatLogProbs(q.names(), answers[i].tokens) }
	}
	if q.scores {
		out.Scores = &promptScores{}
		out.promptScores = func(w *pieces, _ int) { w.promptScores(q.model, q.top, answers[0].prompt) }
	}
	for i := range answers {
		a := &answers[i]
		c := chatChoice{Index: i, Message: a.message(), Finish: q.finish(a.finish)}
		if q.ReturnIDs {
			c.TokenIDs, c.PromptIDs = ids(a.tokens), q.Prompt
		}
		out.Choices = append(out.Choices, c)
	}
	return out, nil
}

// finish returns the finish_reason of an answer. Like OpenAI it returns "stop", not "tool_calls",
// if tool_choice names the function.
func (q *chatRequest) finish(reason string) string {
	if q.named && reason == finishCalls {
		return "stop"
	}
	return reason
}

// edit removes the parts of p that the request hides.
func (q *chatRequest) edit(p *generate.PromptDelta) {
	if !q.thought {
		p.Reasoning = ""
	}
	if q.single {
		p.Calls = withoutMore(p.Calls)
	}
	if p.Choice > 0 { // all choices have the same prompt, which is shown once
		p.Prompt = nil
	}
}

// message returns the message of one choice.
func (a *collected) message() chatMessage {
	m := chatMessage{Role: "assistant", Calls: a.calls}
	if thought := a.thought.String(); thought != "" {
		m.thoughts = thoughts{thought, thought}
	}
	if text := a.text.String(); text != "" || len(a.calls) == 0 {
		m.Content = &text
	}
	return m
}

// chatStream sends one answer in chunks.
type chatStream struct {
	*chatRequest
	chunks[chatChunkChoice]
	begun bool
	ends  []outcome // of each choice
}

func (q *chatRequest) stream(out *wire.Events) stream {
	return &chatStream{chatRequest: q, chunks: newChunks[chatChunkChoice](&q.common, "chat.completion.chunk", out, q.requests()), ends: make([]outcome, q.N)}
}

// part implements stream.
func (s *chatStream) part(p generate.PromptDelta) error {
	if !s.begun {
		s.begun = true
		if err := s.begin(); err != nil {
			return err
		}
	}
	s.count(&p)
	s.edit(&p)
	s.ends[p.Choice].add(p.Calls)
	c := chatChunkChoice{Index: p.Choice, Delta: delta(&p)}
	if s.LogProbs && len(p.Tokens) > 0 {
		c.LogProbs = newChatLogProbs(s.names(), p.Tokens)
	}
	if s.ReturnIDs {
		c.TokenIDs = ids(p.Tokens)
	}
	silent := p.Text == "" && p.Reasoning == "" && len(c.Delta.Calls) == 0
	if silent {
		c.Delta.Content = &p.Text
	}
	if !silent || c.LogProbs != nil || len(c.TokenIDs) > 0 {
		if err := s.send(c); err != nil {
			return err
		}
	}
	if p.Finish == "" {
		return nil
	}
	finish := s.finish(s.ends[p.Choice].reason(string(p.Finish)))
	return s.send(chatChunkChoice{Index: p.Choice, Finish: &finish})
}

// delta returns new output of a message.
func delta(p *generate.PromptDelta) chatDelta {
	d := chatDelta{thoughts: thoughts{p.Reasoning, p.Reasoning}, Calls: callDeltas(p.Calls)}
	if p.Text != "" {
		d.Content = &p.Text
	}
	return d
}

// begin sends the role of each choice.
func (s *chatStream) begin() error {
	none := ""
	for i := range s.N {
		c := chatChunkChoice{Index: i, Delta: chatDelta{Role: "assistant", Content: &none}}
		if s.ReturnIDs {
			c.PromptIDs = s.Prompt
		}
		if err := s.send(c); err != nil {
			return err
		}
	}
	return nil
}
