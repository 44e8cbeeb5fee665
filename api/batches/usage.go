package batches

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
)

// usage counts the tokens of a batch's lines, in the form of OpenAI's batches.
type usage struct {
	Input        int           `json:"input_tokens"`
	InputDetails inputDetails  `json:"input_tokens_details"`
	Output       int           `json:"output_tokens"`
	OutDetails   outputDetails `json:"output_tokens_details"`
	Total        int           `json:"total_tokens"`
}

type inputDetails struct {
	Cached int `json:"cached_tokens"`
}

type outputDetails struct {
	Reasoning int `json:"reasoning_tokens"`
}

// spending collects the model and the tokens of a batch's answers.
type spending struct {
	model string // of the first answer; "" if there is none yet
	usage usage
}

// add counts an endpoint's answer. It reads the token counts under the field names of the Responses
// API or of the other endpoints.
func (s *spending) add(body []byte) {
	var a struct {
		Model string `json:"model"`
		Usage struct {
			usage
			Prompt            int           `json:"prompt_tokens"`
			PromptDetails     inputDetails  `json:"prompt_tokens_details"`
			Completion        int           `json:"completion_tokens"`
			CompletionDetails outputDetails `json:"completion_tokens_details"`
		} `json:"usage"`
	}
	if json.Unmarshal(body, &a) != nil {
		return // the body has another form
	}
	if s.model == "" {
		s.model = a.Model
	}
	s.usage.Input += a.Usage.Input + a.Usage.Prompt
	s.usage.InputDetails.Cached += a.Usage.InputDetails.Cached + a.Usage.PromptDetails.Cached
	s.usage.Output += a.Usage.Output + a.Usage.Completion
	s.usage.OutDetails.Reasoning += a.Usage.OutDetails.Reasoning + a.Usage.CompletionDetails.Reasoning
	s.usage.Total += a.Usage.Total
}

// recover counts the answers in a file of size bytes that an earlier process has written. It holds
// one answer in memory at a time.
func (s *spending) recover(f *os.File, size int64) {
	in := bufio.NewReader(io.NewSectionReader(f, 0, size))
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // a disk error shows again when results are written
		}
		var r result
		if json.Unmarshal(line, &r) == nil && r.Response != nil {
			s.add(r.Response.Body)
		}
	}
}

// into sets the model and the usage of b, if a line has an answer.
func (s *spending) into(b *batch) {
	if s.model != "" {
		b.Model, b.Usage = &s.model, &s.usage
	}
}
