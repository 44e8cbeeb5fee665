package repl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/smallfile"
)

// A command is a line that starts with a slash.
type command struct {
	name, args, help string
	run              func(s *Session, ctx context.Context, args string) error
}

var commands []command

func init() { // help lists them, so the table cannot be a plain value
	commands = []command{
		{"/help", "", "show the commands", (*Session).help},
		{"/system", "[TEXT]", "set the system prompt; without TEXT show it, with - remove it", (*Session).system},
		{"/clear", "", "clear the conversation; system prompt and parameters stay", (*Session).clear},
		{"/retry", "", "answer the last message again", (*Session).retry},
		{"/save", "FILE", "write the conversation to a JSON file", (*Session).save},
		{"/load", "FILE", "read the conversation in a JSON file and continue it", (*Session).load},
		{"/set", "[NAME [VALUE]]", "set a parameter; without VALUE return it to its default", (*Session).set},
		{"/stats", "", "show the tokens and times of the last answer", (*Session).stats},
		{"/exit", "", "quit, as Ctrl-D does", (*Session).exit},
	}
}

// find returns the command of a name, nil if there is none.
func find(name string) *command {
	if name == "/quit" || name == "/bye" {
		name = "/exit"
	}
	for i := range commands {
		if commands[i].name == name {
			return &commands[i]
		}
	}
	return nil
}

func (s *Session) help(context.Context, string) error {
	for _, c := range commands {
		fmt.Fprintf(s.Err, "  %-22s %s\n", strings.TrimSpace(c.name+" "+c.args), c.help)
	}
	fmt.Fprintf(s.Err, "\nA backslash at the end of a line continues the message, as do %s before and after it.\nCtrl-C stops the answer, or empties the line. Parameters: %s.\n",
		block, strings.Join(slices.Sorted(maps.Keys(params)), ", "))
	return nil
}

func (s *Session) system(_ context.Context, text string) error {
	switch text {
	case "":
		fmt.Fprintln(s.Err, "system prompt:", orNone(s.System))
	case "-":
		s.System = ""
	default:
		s.System = text
	}
	return nil
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func (s *Session) clear(context.Context, string) error {
	s.Messages, s.last, s.used = nil, nil, 0
	return nil
}

// retry answers the last message of the user again. If that fails, the message is dropped.
func (s *Session) retry(ctx context.Context, _ string) error {
	n := len(s.Messages)
	for n > 0 && s.Messages[n-1].Role == "assistant" {
		n--
	}
	if n == 0 {
		return errors.New("/retry: there is no message yet")
	}
	before := slices.Clone(s.Messages)
	s.Messages = s.Messages[:n]
	if err := s.answer(ctx); err != nil {
		s.Messages = before
		return err
	}
	return nil
}

func (s *Session) exit(context.Context, string) error {
	s.quit = true
	return nil
}

func (s *Session) stats(context.Context, string) error {
	if s.last == nil {
		fmt.Fprintln(s.Err, "no answer yet")
		return nil
	}
	u := s.last
	fmt.Fprintf(s.Err, "prompt %d tokens, answer %d tokens, first after %.2f s", u.PromptTokens, u.CompletionTokens, u.First.Seconds())
	if rate := u.Rate(); rate > 0 {
		fmt.Fprintf(s.Err, ", then %.1f tokens/s", rate)
	}
	fmt.Fprintf(s.Err, "; %d tokens of the context used\n", s.used)
	return nil
}

// params are the parameters of /set, and the kinds of their values. The server checks ranges.
var params = map[string]string{"temperature": number, "top_p": number, "top_k": number, "min_p": number, "max_tokens": number, "min_tokens": number, "seed": number,
	"repetition_penalty": number, "presence_penalty": number, "frequency_penalty": number, "stop": texts, "reasoning_effort": word, "chat_template_kwargs": object}

// The kinds of values, as errors name them.
const (
	number = "a number"
	word   = "a word"
	texts  = `a text, or a list such as ["END"]`
	object = `a JSON object such as {"enable_thinking": false}`
)

// kindOf returns the kind that a value is of; a list is texts.
func kindOf(v any) string {
	switch v.(type) {
	case float64:
		return number
	case string:
		return word
	case []any:
		return texts
	case map[string]any:
		return object
	}
	return ""
}

func (s *Session) set(_ context.Context, args string) error {
	name, value, _ := strings.Cut(args, " ")
	if name == "" {
		for _, name := range slices.Sorted(maps.Keys(s.Params)) {
			b, err := json.Marshal(s.Params[name])
			if err != nil {
				return err
			}
			fmt.Fprintf(s.Err, "  %s %s\n", name, b)
		}
		if len(s.Params) == 0 {
			fmt.Fprintln(s.Err, "all parameters have their defaults")
		}
		return nil
	}
	want, ok := params[name]
	if !ok {
		return fmt.Errorf("/set: got %q, want one of %s", name, strings.Join(slices.Sorted(maps.Keys(params)), ", "))
	}
	if value = strings.TrimSpace(value); value == "" {
		delete(s.Params, name)
		return nil
	}
	var v any
	if json.Unmarshal([]byte(value), &v) != nil {
		v = value // a string without quotes
	}
	if got := kindOf(v); got != want && (want != texts || got != word) {
		return fmt.Errorf("/set: %s: got %s, want %s", name, value, want)
	}
	if s.Params == nil {
		s.Params = map[string]any{}
	}
	s.Params[name] = v
	return nil
}

// save writes what POST /v1/chat/completions takes. The page exports the same.
func (s *Session) save(_ context.Context, path string) error {
	if path == "" {
		return errors.New("/save: want a file")
	}
	out := map[string]any{"model": s.Model}
	maps.Copy(out, s.Params)
	messages := s.Messages
	if s.System != "" {
		messages = append([]Message{{Role: "system", Content: s.System}}, messages...)
	}
	out["messages"] = append([]Message{}, messages...)
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.WriteFile(path, append(b, '\n')); err != nil {
		return fmt.Errorf("/save: %w", err)
	}
	fmt.Fprintf(s.Err, "saved %d messages to %s\n", len(s.Messages), path)
	return nil
}

// maxConversation is the maximum size of a file that /load reads.
const maxConversation = 64 << 20

// load replaces the conversation, system prompt and parameters by those of a file. The model stays.
func (s *Session) load(_ context.Context, path string) error {
	if path == "" {
		return errors.New("/load: want a file")
	}
	b, err := smallfile.Read(path, maxConversation)
	if err != nil {
		return fmt.Errorf("/load: %w", err)
	}
	all, list, err := readConversation(b)
	if err != nil {
		return fmt.Errorf("/load: %s: %w", path, err)
	}
	system := ""
	var messages []Message
	for i, m := range list {
		switch {
		case m.Role == "system" && i == 0:
			system = m.Content
		case m.Role == "user", m.Role == "assistant":
			messages = append(messages, m)
		default:
			return fmt.Errorf("/load: %s: message %d: got role %q, want user or assistant", path, i, m.Role)
		}
	}
	found := map[string]any{}
	for name, v := range all {
		if _, ok := params[name]; ok {
			found[name] = v
		}
	}
	s.System, s.Messages, s.Params, s.last, s.used = system, messages, found, nil, 0
	fmt.Fprintf(s.Err, "loaded %d messages from %s\n", len(messages), path)
	return nil
}

// readConversation parses what /save writes: all fields, and the messages of one. A file without messages is an error, so
// that a wrong name does not empty the conversation.
func readConversation(b []byte) (fields map[string]any, messages []Message, err error) {
	var file struct{ Messages *[]Message }
	err = errors.Join(json.Unmarshal(b, &fields), json.Unmarshal(b, &file))
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		return nil, nil, fmt.Errorf("%s: got JSON of type %s, want text in the content of each of a list of messages", strings.ToLower(kind.Field), kind.Value)
	case errors.As(err, &kind):
		return nil, nil, fmt.Errorf("got JSON of type %s, want an object with messages, as /save writes it", kind.Value)
	case err == nil && file.Messages == nil:
		return nil, nil, errors.New("got no messages, want an object with messages, as /save writes it")
	case err != nil:
		return nil, nil, err
	}
	return fields, *file.Messages, nil
}
