package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"callgate/config"
	"callgate/gate"
	"callgate/gate/redact"
	"callgate/proxy/providertest"
)

// How long the demo's person may think: long at a terminal, and only so long
// where nobody is there that one sees the time run out.
const (
	demoPatience = 2 * time.Minute
	demoSilence  = 1200 * time.Millisecond
)

const demoLong = `Shows callgate at work: a scripted model, a small agent and callgate between
them, all in this one process. Nothing is run, no key is needed and nothing
leaves this machine. The model asks for a harmless command, a dangerous one
and one that never runs.

On a terminal you are the person who is asked about the dangerous one.
Elsewhere nobody is, and the question runs out; --answer says what to answer.`

// newDemoCommand makes the demo command.
func newDemoCommand(e *env) *cobra.Command {
	var answer string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show callgate at work, in one process and without a key",
		Long:  demoLong,
		Example: `  callgate demo
  callgate demo --answer no
  callgate demo --answer yes --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd); err != nil {
				return err
			}
			switch answer {
			case "", "yes", "no":
			default:
				return usagef("--answer is %q; use yes or no", answer)
			}
			d := &demo{e: e, style: newStyle(e, e.StdoutTTY), json: asJSON, answer: answer}
			d.live = answer == "" && !asJSON && e.StdinTTY && e.StdoutTTY
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&answer, "answer", "", "answer the question with yes or no instead of asking")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

// scene is one task that the user gives the agent.
type scene struct {
	title, user string
	// call is the model's first answer; then it says done when the call ran, or
	// refused when it reads a refusal in the place of a result.
	call          providertest.Turn
	done, refused string
	// reaches says that the agent must get the call; asked scenes follow the
	// answer.
	reaches, asked bool
}

// demoCall is an answer of the model that runs a command.
func demoCall(id, command string) providertest.Turn {
	args, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err) // a map of strings can always be written
	}
	return providertest.Turn{Say: []providertest.Item{providertest.Call{ID: id, Name: "bash", Args: string(args)}}}
}

func demoWords(text string) providertest.Turn {
	return providertest.Turn{Say: []providertest.Item{providertest.Text(text)}}
}

func demoScenes() []scene {
	return []scene{
		{
			title: "a harmless command", user: "What is in my projects folder?", reaches: true,
			call: demoCall("call_list", "ls -la ~/projects"),
			done: "Two projects: blog and shop.", refused: "I could not look into the folder.",
		},
		{
			title: "a dangerous command", user: "Free some disk space.", asked: true,
			call: demoCall("call_clean", "rm -rf ~/projects"),
			done: "I removed the projects folder.", refused: "I may not delete your projects. Which of them can go?",
		},
		{
			title: "a command that never runs", user: "Start over with an empty disk.",
			call: demoCall("call_wipe", "sudo rm -rf --no-preserve-root /"),
			done: "The disk is empty.", refused: "That cannot be done from here. A backup and a new installation can.",
		},
	}
}

// demo is one run.
type demo struct {
	e      *env
	style  style
	json   bool
	answer string
	live   bool // a person at the terminal is asked

	parts *parts
	base  string // where the agent believes the provider to be
	stage atomic.Pointer[providertest.Provider]

	mu    sync.Mutex // guards what is printed, and below
	scene int
	last  gate.Decision
}

// run builds everything, plays the scenes and takes it down again.
func (d *demo) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "callgate-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	provider, stop, err := serveLoopback(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.stage.Load().ServeHTTP(w, r)
	}))
	if err != nil {
		return err
	}
	defer stop()
	d.parts, err = assemble(ctx, d.settings(dir, provider), surroundings{
		notify: d.ask, decided: d.decided, log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.parts.Close()) }()
	front, stop, err := serveLoopback(d.parts.data)
	if err != nil {
		return err
	}
	defer stop()
	d.base = front + "/demo"
	d.opening()
	for i, s := range demoScenes() {
		if err := d.play(ctx, i+1, s); err != nil {
			return fmt.Errorf("demo: %s: %w", s.title, err)
		}
	}
	d.closing()
	return nil
}

// settings are those of callgate as it comes, with the demo's provider and
// state.
func (d *demo) settings(dir, provider string) *config.Config {
	cfg := config.Default()
	cfg.State = dir
	cfg.Upstreams = config.Upstreams{"demo": {URL: provider}}
	cfg.World = config.World{Home: "/home/demo", Cwd: "/home/demo", User: "demo"}
	cfg.Approvals.HumanTimeout = config.Duration(demoSilence)
	if d.live || d.answer != "" {
		cfg.Approvals.HumanTimeout = config.Duration(demoPatience)
	}
	return &cfg
}

// serveLoopback serves h on a free port of this machine.
func serveLoopback(h http.Handler) (base string, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(ln) // ends with the Close below
	}()
	return "http://" + ln.Addr().String(), func() {
		_ = srv.Close()
		<-ended
	}, nil
}

// play lets the agent work on one task and checks that it went as it must.
func (d *demo) play(ctx context.Context, number int, s scene) error {
	provider := providertest.NewByContent(d.plays(s))
	d.stage.Store(provider)
	d.mu.Lock()
	d.scene = number
	d.mu.Unlock()
	d.say(event{Who: "scene", Text: s.title})
	a := &demoAgent{base: d.base}
	a.add(map[string]any{"role": "user", "content": s.user})
	d.say(event{Who: "user", Text: s.user})
	for round := range 2 {
		msg, err := a.next(ctx)
		if err != nil {
			return err
		}
		d.seen(msg)
		if round == 0 {
			if err := d.checked(s, msg); err != nil {
				return err
			}
		}
		if len(msg.Calls) == 0 {
			break
		}
		for _, c := range msg.Calls {
			a.add(map[string]any{"role": "tool", "tool_call_id": c.ID, "content": "(the demo runs nothing)"})
		}
	}
	if f := provider.Faults(); len(f) > 0 {
		return fmt.Errorf("the provider refused a request: %s", strings.Join(f, "; "))
	}
	return nil
}

// plays is the model of a scene.
func (d *demo) plays(s scene) func(providertest.Asked) (providertest.Turn, bool) {
	return func(a providertest.Asked) (providertest.Turn, bool) {
		turn := s.call
		if a.Answers > 0 {
			turn = demoWords(s.done)
			if refusal := refusalIn(a.Body); refusal != "" {
				d.say(event{Who: "model", Result: refusal})
				turn = demoWords(s.refused)
			}
		}
		d.model(turn)
		return turn, true
	}
}

// refusalIn is the result that the model reads for its call when it is one of
// callgate's, "" when the call ran.
func refusalIn(body []byte) string {
	var doc struct {
		Messages []struct{ Role, Content string }
	}
	if json.Unmarshal(body, &doc) != nil || len(doc.Messages) == 0 {
		return ""
	}
	last := doc.Messages[len(doc.Messages)-1]
	if last.Role != "tool" || !strings.HasPrefix(last.Content, "[callgate]") {
		return ""
	}
	return last.Content
}

// checked says whether the call reached the agent exactly when it was to.
func (d *demo) checked(s scene, msg demoMessage) error {
	d.mu.Lock()
	allowed := d.last.Verdict == gate.Allow
	d.mu.Unlock()
	reached := len(msg.Calls) > 0
	want := s.reaches || s.asked && allowed
	switch {
	case reached && !want:
		return errors.New("the call reached the agent and must not have; please report this")
	case !reached && want:
		return errors.New("the call was allowed and did not reach the agent; please report this")
	}
	return nil
}

// demoAgent is an agent that speaks Chat Completions and runs nothing.
type demoAgent struct {
	base     string
	messages []any
}

func (a *demoAgent) add(m any) { a.messages = append(a.messages, m) }

// demoMessage is what an agent reads of an answer.
type demoMessage struct {
	Content string
	Calls   []demoToolCall
}

type demoToolCall struct{ ID, Name, Args string }

// next asks for the next answer and adds it to the history as it came.
func (a *demoAgent) next(ctx context.Context) (demoMessage, error) {
	body, err := json.Marshal(map[string]any{
		"model": "demo-model", "messages": a.messages,
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{
			"name": "bash", "description": "Run a command.",
			"parameters": map[string]any{
				"type": "object", "required": []string{"command"},
				"properties": map[string]any{"command": map[string]any{"type": "string"}},
			},
		}}},
	})
	if err != nil {
		return demoMessage{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return demoMessage{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer demo")
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return demoMessage{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return demoMessage{}, err
	}
	if res.StatusCode != http.StatusOK {
		return demoMessage{}, fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(raw))
	}
	return a.take(raw)
}

// take reads an answer and adds its message to the history.
func (a *demoAgent) take(raw []byte) (demoMessage, error) {
	var doc struct {
		Choices []struct {
			Message json.RawMessage `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return demoMessage{}, err
	}
	if len(doc.Choices) == 0 {
		return demoMessage{}, errors.New("the answer has no choice")
	}
	var m struct {
		Content string `json:"content"`
		Calls   []struct {
			ID       string `json:"id"`
			Function struct {
				Name string `json:"name"`
				Args string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(doc.Choices[0].Message, &m); err != nil {
		return demoMessage{}, err
	}
	a.add(doc.Choices[0].Message)
	msg := demoMessage{Content: m.Content}
	for _, c := range m.Calls {
		msg.Calls = append(msg.Calls, demoToolCall{c.ID, c.Function.Name, c.Function.Args})
	}
	return msg, nil
}

// ask is told of the question to a person. At a terminal it asks there; with
// --answer it answers; else the question runs out.
func (d *demo) ask(ctx context.Context, a gate.Approval) error {
	d.say(event{Who: "callgate", Verdict: "ask", Text: questionOf(a), Rule: firstRule(a), Approval: a.ID})
	switch {
	case d.live:
		// The line may come late or never: nothing waits for this goroutine,
		// and an answer to a question that has run out changes nothing.
		go func() {
			yes := d.read(a)
			_, _ = d.parts.desk.Answer(context.WithoutCancel(ctx), a.ID, gate.Answer{Approve: yes, By: "you"})
		}()
	case d.answer != "":
		yes := d.answer == "yes"
		_, err := d.parts.desk.Answer(ctx, a.ID, gate.Answer{Approve: yes, By: "--answer " + d.answer})
		return err
	}
	return nil
}

// read asks at the terminal. Only a clear yes is one.
func (d *demo) read(a gate.Approval) bool {
	d.mu.Lock()
	fmt.Fprintf(d.e.Stdout, "  %s  allow %s? Nothing is really run. [y/N] ", d.who("you"), d.style.bold(redact.Visible(a.Command)))
	d.mu.Unlock()
	line, err := bufio.NewReader(d.e.Stdin).ReadString('\n')
	if err != nil {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}

func questionOf(a gate.Approval) string {
	if len(a.Findings) == 0 {
		return "it wants a person's consent"
	}
	return a.Findings[0].Reason
}

func firstRule(a gate.Approval) string {
	if len(a.Findings) == 0 {
		return ""
	}
	return a.Findings[0].Rule
}

// decided hears of every decision.
func (d *demo) decided(_ *gate.Request, dec gate.Decision) {
	d.mu.Lock()
	d.last = dec
	d.mu.Unlock()
	d.say(event{
		Who: "callgate", Verdict: dec.Verdict.String(), Text: dec.Reason, Rule: dec.Rule,
		By: dec.By, Outcome: string(dec.Outcome), Approval: dec.Approval,
	})
}

// model shows what the model says in a turn.
func (d *demo) model(t providertest.Turn) {
	for _, it := range t.Say {
		switch it := it.(type) {
		case providertest.Text:
			d.say(event{Who: "model", Text: string(it)})
		case providertest.Call:
			d.say(event{Who: "model", Tool: it.Name, Args: it.Args})
		}
	}
}

// seen shows what arrived at the agent.
func (d *demo) seen(m demoMessage) {
	if m.Content != "" {
		d.say(event{Who: "agent", Text: m.Content})
	}
	for _, c := range m.Calls {
		d.say(event{Who: "agent", Tool: c.Name, Args: c.Args})
	}
}
