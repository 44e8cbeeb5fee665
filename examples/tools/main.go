// Tools runs a tool loop over HTTP: the model calls a function of this program, gets its result, and
// answers. The arguments of a call always satisfy the function's schema.
//
//	go run ./examples/tools
//	go run ./examples/tools -url http://127.0.0.1:8000 -ask 'How warm is it in Oslo?'
//
// Without a URL it serves the demo model with a chat template that has tools. That model knows no
// tools, so the first turn forces a call; larger models call by themselves.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

// A message is one of a conversation, in OpenAI's wire.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Calls   []call `json:"tool_calls,omitempty"`
	CallID  string `json:"tool_call_id,omitempty"`
}

type call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// weather describes the function to the model.
const weather = `{"type": "function", "function": {
	"name": "weather",
	"description": "Tells the weather of the next days in a city.",
	"strict": true,
	"parameters": {
		"type": "object",
		"properties": {
			"city": {"enum": ["Lima", "Lisbon", "Oslo"]},
			"days": {"type": "integer", "minimum": 1, "maximum": 7}
		},
		"required": ["city", "days"],
		"additionalProperties": false
	}
}}`

// forecast is the function itself.
func forecast(arguments string) (string, error) {
	var a struct {
		City string
		Days int
	}
	if err := json.Unmarshal([]byte(arguments), &a); err != nil {
		return "", err
	}
	degrees, known := map[string]int{"Lima": 19, "Lisbon": 24, "Oslo": 7}[a.City]
	if !known || a.Days < 1 || a.Days > 7 {
		return "", fmt.Errorf("no forecast of %d days for %q", a.Days, a.City)
	}
	return fmt.Sprintf(`{"city": %q, "days": %d, "celsius": %d}`, a.City, a.Days, degrees), nil
}

// compact is a JSON text on one line.
func compact(s string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(s)) != nil {
		return s
	}
	return b.String()
}

// A client asks a server.
type client struct{ url, model string }

// next returns the model's next message. choice says whether it must, may or must not call.
func (c client) next(ctx context.Context, conversation []message, choice string) (message, error) {
	body, err := json.Marshal(map[string]any{"model": c.model, "messages": conversation, "tools": []json.RawMessage{json.RawMessage(weather)},
		"tool_choice": choice, "parallel_tool_calls": false, "temperature": 0, "max_tokens": 200})
	if err != nil {
		return message{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return message{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return message{}, err
	}
	defer answer.Body.Close()
	var out struct {
		Choices []struct{ Message message }
		Error   struct{ Message string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		return message{}, fmt.Errorf("status %s: %w", answer.Status, err)
	}
	if answer.StatusCode != http.StatusOK || len(out.Choices) == 0 {
		return message{}, fmt.Errorf("status %s: %s", answer.Status, out.Error.Message)
	}
	return out.Choices[0].Message, nil
}

// mostTurns bounds a loop in which the model calls again and again.
const mostTurns = 8

// loop asks a question and runs the calls of the model until it answers without one. choice is
// "required" to force a call in the first turn, "auto" to leave it to the model.
func (c client) loop(ctx context.Context, to io.Writer, question, choice string) error {
	conversation := []message{{Role: "user", Content: question}}
	for range mostTurns {
		m, err := c.next(ctx, conversation, choice)
		if err != nil {
			return err
		}
		if len(m.Calls) == 0 {
			_, err := fmt.Fprintf(to, "answer  %q\n", m.Content)
			return err
		}
		conversation, choice = append(conversation, m), "auto"
		for _, one := range m.Calls {
			fmt.Fprintf(to, "call    %s %s\n", one.Function.Name, compact(one.Function.Arguments))
			result, err := forecast(one.Function.Arguments)
			if err != nil {
				result = "error: " + err.Error() // the model may try again
			}
			fmt.Fprintf(to, "result  %s\n", result)
			conversation = append(conversation, message{Role: "tool", Content: result, CallID: one.ID})
		}
	}
	return errors.New("the model does not stop calling")
}

// write runs the loop with the demo model.
func write(ctx context.Context, to io.Writer) error {
	s, err := serve()
	if err != nil {
		return err
	}
	defer s.close()
	return client{s.url, s.model}.loop(ctx, to, "How warm is it in Lisbon?", "required")
}

func main() {
	url := flag.String("url", "", "URL of a server; without one, serve the demo model")
	model := flag.String("model", "", "model of the server; without one, its first")
	question := flag.String("ask", "How warm is it in Lisbon?", "question")
	flag.Parse()
	ctx := context.Background()
	var err error
	if *url == "" {
		err = write(ctx, os.Stdout)
	} else {
		err = client{*url, *model}.loop(ctx, os.Stdout, *question, "auto")
	}
	if err != nil {
		log.Fatal(err)
	}
}
