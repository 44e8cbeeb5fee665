package repl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
)

// A Session is a conversation. One goroutine may use it.
type Session struct {
	Client   *Client
	Model    string
	System   string
	Messages []Message
	Params   map[string]any // further fields of requests, such as temperature

	Out io.Writer // answers
	// Err gets errors and what is not part of answers.
	Err io.Writer
	// Fancy says that Out is a terminal: reasoning is shown, dim, and control characters that a model
	// writes do not reach the terminal.
	Fancy bool
	// Plain turns colours off on a terminal.
	Plain bool
	// Interrupts stop the answer in progress. Between answers nothing receives from it.
	Interrupts <-chan os.Signal

	last *Usage
	used int // tokens of the context, after the last answer
	quit bool
}

// Run reads messages and commands until the input ends. Without a person at the input, the first error
// ends it.
func (s *Session) Run(ctx context.Context, in Input) error {
	defer in.Close()
	for !s.quit {
		line, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := s.do(ctx, line, in.Interactive()); err != nil {
			if !in.Interactive() || ctx.Err() != nil {
				return err
			}
			fmt.Fprintln(s.Err, s.style(red, "error: "+clean(err.Error())))
		}
	}
	if in.Interactive() && !s.quit {
		fmt.Fprintln(s.Err)
	}
	return nil
}

// do runs a command or sends a message.
func (s *Session) do(ctx context.Context, line string, interactive bool) error {
	if line == "" {
		return nil
	}
	if strings.HasPrefix(line, "/") && !strings.Contains(line, "\n") {
		name, rest, _ := strings.Cut(line, " ")
		if c := find(name); c != nil {
			return c.run(s, ctx, strings.TrimSpace(rest))
		}
		if interactive {
			return fmt.Errorf("%s is not a command: /help lists them; a space before it sends it as text", name)
		}
	}
	s.Messages = append(s.Messages, Message{Role: "user", Content: strings.TrimSpace(line)})
	return s.answer(ctx)
}

// answer has the model answer the conversation. An answer that is stopped keeps its part; one that
// fails leaves the conversation as it was before the message.
func (s *Session) answer(ctx context.Context) error {
	messages := make([]Message, 0, len(s.Messages)+1)
	if s.System != "" {
		messages = append(messages, Message{Role: "system", Content: s.System})
	}
	for _, m := range s.Messages {
		messages = append(messages, Message{Role: m.Role, Content: m.Content})
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan bool, 1)
	go func() {
		select {
		case <-s.Interrupts:
			stopped <- true
			cancel()
		case <-asking.Done():
			stopped <- false
		}
	}()
	w := writer{s: s, stop: cancel}
	usage, err := s.Client.Complete(asking, s.Model, messages, s.Params, w.take)
	cancel()
	interrupted := <-stopped
	w.end()
	if w.err != nil {
		err = w.err
	}
	if err != nil && (!interrupted || ctx.Err() != nil || w.err != nil) {
		s.Messages = s.Messages[:len(s.Messages)-1]
		return err
	}
	if w.content.Len() == 0 && interrupted {
		s.Messages = s.Messages[:len(s.Messages)-1]
	} else {
		s.Messages = append(s.Messages, Message{Role: "assistant", Content: w.content.String(), Reasoning: w.reasoning.String()})
	}
	if interrupted {
		fmt.Fprintln(s.Err, s.style(dim, "stopped"))
		return nil
	}
	s.last, s.used = usage, usage.PromptTokens+usage.CompletionTokens
	if usage.Finish == "length" {
		fmt.Fprintln(s.Err, s.style(dim, "cut at the limit of tokens"))
	}
	return nil
}

// A writer shows an answer.
type writer struct {
	s                  *Session
	content, reasoning strings.Builder
	news, thinks       bool   // news is on the terminal; reasoning was the last piece
	stop               func() // ends the answer
	err                error  // of the first write that failed
}

// print writes to the output. The first error stops the answer.
func (w *writer) print(text string) {
	if w.err != nil {
		return
	}
	if _, w.err = fmt.Fprint(w.s.Out, text); w.err != nil {
		w.stop()
	}
}

func (w *writer) take(d Delta) {
	s := w.s
	if d.News != "" {
		if s.Fancy && w.content.Len()+w.reasoning.Len() == 0 {
			w.news = true
			w.print("\r\x1b[K" + s.style(dim, clean(d.News)))
		}
		return
	}
	if w.news {
		w.news = false
		w.print("\r\x1b[K")
	}
	w.reasoning.WriteString(d.Reasoning)
	if d.Reasoning != "" && s.Fancy {
		w.thinks = true
		w.print(s.style(dim, clean(d.Reasoning)))
	}
	if d.Content == "" {
		return
	}
	if w.thinks {
		w.thinks = false
		w.print("\n\n")
	}
	w.content.WriteString(d.Content)
	if s.Fancy {
		d.Content = clean(d.Content)
	}
	w.print(d.Content)
}

// end ends the last line.
func (w *writer) end() {
	if w.news {
		w.print("\r\x1b[K")
	}
	if text := w.content.String(); w.thinks || text != "" && !strings.HasSuffix(text, "\n") {
		w.print("\n")
	}
}

// clean removes control characters, with which a model could rewrite the screen, the clipboard or the
// window's title.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// The styles of a terminal.
const (
	dim = "\x1b[2m"
	red = "\x1b[31m"
)

func (s *Session) style(style, text string) string {
	if !s.Fancy || s.Plain {
		return text
	}
	return style + text + "\x1b[0m"
}
