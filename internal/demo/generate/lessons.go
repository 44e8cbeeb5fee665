package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// An exchange is a question and its answer.
type exchange struct{ question, answer string }

// A teacher generates conversations: from the talks, and by rules for sums and the user's name.
type teacher struct {
	talks []talk
	shrug []string // answers to unknown questions
	draws []int    // the talk of each way to begin one, so that rich talks come more often
}

func newTeacher(talks []talk) *teacher {
	t := &teacher{talks: talks}
	for i, k := range talks {
		if strings.HasPrefix(k[0].answers[0], "That is beyond") {
			t.shrug = k[0].answers
		}
		// Half by talk, half by the number of ways to ask.
		for range 4 + min(len(k[0].questions), 24)/2 + 2*min(len(k[0].answers), 12) {
			t.draws = append(t.draws, i)
		}
	}
	return t
}

// conversation returns a conversation of n exchanges or a few more.
func (t *teacher) conversation(r *rand.Rand, n int) []exchange {
	var all []exchange
	name := ""
	for len(all) < n {
		switch p := r.Float64(); {
		case p < 0.20:
			all = append(all, sum(r))
		case p < 0.28:
			all = append(all, t.named(r, &name))
		case p < 0.35:
			all = append(all, exchange{sloppy(r, strange(r)), pick(r, t.shrug)})
		default:
			for _, u := range t.talks[t.draws[r.IntN(len(t.draws))]] {
				all = append(all, exchange{sloppy(r, pick(r, u.questions)), pick(r, u.answers)})
			}
		}
	}
	return all
}

func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

// sum returns an exchange of simple arithmetic.
func sum(r *rand.Rand) exchange {
	a, b := r.IntN(21), r.IntN(21)
	signs, result := []string{"+", "plus"}, a+b
	switch r.IntN(3) {
	case 1:
		a, b = max(a, b), min(a, b)
		signs, result = []string{"-", "minus"}, a-b
	case 2:
		a, b = a%11, b%11
		signs, result = []string{"*", "times", "x"}, a*b
	}
	sign := pick(r, signs)
	what := fmt.Sprintf("%d %s %d", a, sign, b)
	if len(sign) == 1 && r.IntN(3) == 0 {
		what = strings.ReplaceAll(what, " ", "")
	}
	form := pick(r, []string{"What is %s?", "%s", "%s?", "How much is %s?", "Calculate %s.", "what is %s", "%s =", "Can you add numbers? What is %s?"})
	return exchange{fmt.Sprintf(form, what), strconv.Itoa(result) + "."}
}

// strange returns a question that no text answers.
func strange(r *rand.Rand) string {
	form := pick(r, []string{"What is a %s?", "What is the %s of a %s?", "What do you know about the %s?", "How do I buy a %s?", "How do I make a %s?", "Why is the %s so big?",
		"Tell me about the %s.", "Who invented the %s?", "Where is the %s?", "When was the %s built?", "Do you like the %s?", "How much does a %s cost?", "Which %s is the best?",
		"Who is the %s?", "Explain the %s.", "What is the best %s?", "How old is the %s?", "Is the %s good?", "Describe a %s.", "What happened to the %s?", "Can you draw a %s?",
		"What is the history of the %s?", "Write a story about a %s and a %s.", "Do you have a %s?", "Who wrote the %s?", "Why do people like the %s?", "How many %ss are there?",
		"Who is the %s of Germany?", "Who is the %s of France?", "Who was the first %s of Japan?", "What is the name of the %s of Italy?", "What is the best %s in Spain?", "What is your favourite %s?"})
	args := make([]any, strings.Count(form, "%s"))
	for i := range args {
		args[i] = pick(r, things)
	}
	return fmt.Sprintf(form, args...)
}

var things = strings.Fields(`apple guitar mountain river castle bridge painter minister chancellor emperor film song opera novel poet pizza cheese bicycle tractor ship
	rocket planet comet desert island jungle tiger horse rabbit parrot shark bee flower oak tulip rose potato tomato cake soup wine coffee tea chair table
	lamp mirror window door house tower church school doctor lawyer teacher farmer baker king queen soldier war battle treaty law tax bank coin market shop
	phone camera radio television newspaper football tennis chess violin piano drum dance theatre museum statue painting pyramid volcano storm snow rainbow
	ocean beach lake forest garden road train airport hotel restaurant ticket holiday birthday wedding shoe hat coat dress ring necklace medicine vaccine
	virus bacterium cell brain heart bone muscle molecule electron magnet battery engine turbine telescope microscope clock calendar language alphabet`)

var names = strings.Fields(`Anna Ben Clara David Emma Finn Greta Hugo Ida Jonas Kira Leo Mia Noah Olga Paul Rosa Sam Tina Uwe Vera Will Xenia Yara Zoe Alice
	Bob Carol Dan Eve Frank Grace Heidi Ivan Judy Karl Lena Max Nina Oscar Peter Quinn Ruth Sarah Tom Ursula Victor Wendy Adam Maria John Mary James
	Linda Robert Susan Michael Lisa Daniel Nancy Mark Betty George Helen Edward Laura Brian Kevin Jason Julia Eric Amy Ryan Ella Lucas Luna Liam Ava`)

// named returns an exchange about the user's name, which is *name once the user has told it.
func (t *teacher) named(r *rand.Rand, name *string) exchange {
	if *name == "" && r.IntN(5) == 0 {
		return exchange{sloppy(r, pick(r, []string{"What is my name?", "Do you know my name?", "Who am I?"})), "You have not told me yet. What is your name?"}
	}
	if *name == "" || r.IntN(4) == 0 {
		*name = pick(r, names)
		said := fmt.Sprintf(pick(r, []string{"My name is %s.", "I am %s.", "I'm %s", "my name is %s", "Hello, I am %s.", "Hi, my name is %s.", "Call me %s."}), *name)
		return exchange{said, fmt.Sprintf(pick(r, []string{"Nice to meet you, %s!", "Hello %s! What would you like to know?"}), *name)}
	}
	return exchange{sloppy(r, pick(r, []string{"What is my name?", "Do you know my name?", "Who am I?", "What was my name?"})), "Your name is " + *name + "."}
}

// rewordings are other ways to begin a question.
var rewordings = []struct {
	from string
	to   []string
}{
	{"What is a ", []string{"What's a ", "whats a ", "Explain ", "What exactly is a ", "Define ", "What does a ", "Tell me about ", "Tell me what a ", "What are ", ""}},
	{"What is the ", []string{"What's the ", "whats the ", "Tell me the ", "Do you know the ", "Explain the ", "The ", ""}},
	{"What is ", []string{"What's ", "whats ", "Explain ", "What exactly is ", "Tell me about ", "Define ", "What about ", "Do you know what this is: ", "And ", ""}},
	{"What are ", []string{"whats ", "Explain ", "Tell me about ", "What is ", ""}},
	{"How do I ", []string{"How can I ", "How to ", "How would I ", "I want to ", "How does one ", "What do I do to ", "Show me how to ", "Can you tell me how to ", "how do you "}},
	{"How does ", []string{"How exactly does ", "Explain how ", "Can you explain how ", "Tell me how "}},
	{"Can I ", []string{"Could I ", "Is it possible to ", "May I ", "Am I able to ", "How can I "}},
	{"Can you ", []string{"Could you ", "Are you able to ", "Would you ", "Will you ", "can u "}},
	{"Do I need ", []string{"Do I have to have ", "Must I have ", "Will I need ", "Do we need "}},
	{"Tell me a ", []string{"Give me a ", "A ", "I want a ", "Can you tell me a ", "I would like a ", "Got a ", "Do you have a ", "Let me hear a "}},
	{"Does Heft ", []string{"Can Heft ", "Does it ", "Will Heft ", "Could Heft "}},
	{"Why ", []string{"Why exactly ", "Tell me why ", "Do you know why "}},
	{"Who ", []string{"Do you know who ", "Tell me who "}},
	{"Which ", []string{"Tell me which ", "what "}},
}

// reword begins a question in another way.
func reword(r *rand.Rand, s string) string {
	for _, w := range rewordings {
		if rest, ok := strings.CutPrefix(s, w.from); ok {
			return pick(r, w.to) + rest
		}
	}
	return s
}

// sloppy writes a question as people type: in other words, without capitals, punctuation or a
// letter, or with a word around it.
func sloppy(r *rand.Rand, s string) string {
	if r.IntN(3) == 0 {
		s = reword(r, s)
	}
	if r.IntN(8) == 0 {
		s = pick(r, []string{"Please: ", "Hey, ", "Hi! ", "So, ", "And ", "OK, ", "Tell me, ", "Hello! ", "Can you tell me: ", "I wonder: "}) + s
	}
	if r.IntN(3) == 0 {
		s = strings.ToLower(s)
	}
	if r.IntN(3) == 0 {
		s = strings.TrimRight(s, "?.!")
	}
	if r.IntN(20) == 0 {
		s = strings.ToUpper(s)
	}
	if r.IntN(25) == 0 {
		s += pick(r, []string{" please", "??", "!", " :)", " Thanks", " now"})
	}
	if r.IntN(6) == 0 {
		s = typo(r, s)
	}
	if s == "" {
		return "?"
	}
	return s
}

// typo drops a letter or swaps it with the next.
func typo(r *rand.Rand, s string) string {
	b := []byte(s)
	if len(b) < 5 {
		return s
	}
	i := 1 + r.IntN(len(b)-2)
	if b[i-1] >= 0x80 || b[i] >= 0x80 || b[i+1] >= 0x80 { // keep runes whole
		return s
	}
	if r.IntN(2) == 0 {
		return string(b[:i]) + string(b[i+1:])
	}
	b[i], b[i+1] = b[i+1], b[i]
	return string(b)
}

// system returns a system message of common clients. It must not change answers.
func system(r *rand.Rand) string {
	if r.IntN(8) != 0 {
		return ""
	}
	return pick(r, []string{"You are a helpful assistant.", "You are a friendly assistant. Answer briefly.", "Be helpful.", "You are Heft's demo model.",
		"Answer in one sentence.", "You are an expert."})
}
