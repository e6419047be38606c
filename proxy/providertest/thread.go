package providertest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// threadBeta is what a request with a thread has to name in anthropic-beta.
const threadBeta = "message-threads-2026-08-12"

// thread is a conversation that the provider holds: the first request creates
// it, each further one names the answer that it goes on behind and brings only
// what is new. The rules are those that Anthropic's SDK states with its error
// types and keeps in its tool runner: each answer can be continued once; tools
// and system come from the request that created the thread and must not be
// repeated; cache_control and thinking at the top level are not supported. That
// the model must stay the same and that a held history is checked like a sent
// one is taken from the meaning of the errors.
type thread struct {
	model     string
	turns     []turnOf        // what the request and its thread held, then the answer too
	names     map[string]bool // of the tools
	size      int
	continued bool
}

// tools gives the names of a thread's tools.
func (th *thread) tools() map[string]bool {
	if th == nil {
		return nil
	}
	return th.names
}

// history gives what a thread holds.
func (th *thread) history() []turnOf {
	if th == nil {
		return nil
	}
	return th.turns
}

// use takes the one continuation that an answer has.
func (th *thread) use() error {
	switch {
	case th == nil:
		return nil
	case th.continued:
		return threadFault("thread_already_continued", "the response that `previous_message_id` names has already been continued")
	}
	th.continued = true
	return nil
}

func threadFault(code, reason string) error {
	f := &fault{status: http.StatusBadRequest, code: code, reason: code + ": " + reason}
	if code == "thread_not_found" {
		f.status = http.StatusNotFound
	}
	return f
}

// thread reads the member of that name and finds what the request goes on
// with.
func (p *Provider) thread(a *asked, h http.Header, o object) error {
	v, set := o["thread"]
	if !set || v == nil {
		return nil
	}
	if !hasBeta(h, threadBeta) {
		return badf("thread: extra inputs are not permitted (the anthropic-beta header does not name %s)", threadBeta)
	}
	t, _ := v.(object)
	typ, _ := t["type"].(string)
	for _, k := range []string{"cache_control", "context_management", "thinking"} {
		if setting, _ := o[k].(object); o[k] != nil && setting["type"] != "disabled" {
			return threadFault("thread_unsupported_request", "`thread` cannot be combined with `"+k+"`")
		}
	}
	switch typ {
	case "create":
		if err := known(t, "thread.", "type"); err != nil {
			return err
		}
		a.keep = &thread{model: a.model}
		return nil
	case "continue":
		if err := known(t, "thread.", "type", "previous_message_id"); err != nil {
			return err
		}
		return p.goOn(a, t, o)
	}
	return badf("thread.type: input should be 'create' or 'continue'")
}

// goOn finds the answer that a request continues.
func (p *Provider) goOn(a *asked, t, o object) error {
	id, err := str(t, "thread.continue.", "previous_message_id")
	if err != nil {
		return err
	}
	for _, k := range []string{"system", "tools"} {
		if _, set := o[k]; set {
			return threadFault("thread_fingerprint_mismatch", "`"+k+"` is taken from the thread and must not be sent when it is continued")
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	was, ok := p.threads[id]
	switch {
	case !ok:
		return threadFault("thread_not_found", "no thread has a response with the id "+id)
	case was.continued:
		was = &thread{continued: true}
		return was.use()
	case was.model != a.model:
		return threadFault("thread_fingerprint_mismatch", "`model` differs from that of the thread")
	}
	a.continues, a.keep = was, &thread{model: a.model}
	a.size += was.size
	return nil
}

func hasBeta(h http.Header, beta string) bool {
	for _, line := range h.Values("Anthropic-Beta") {
		for name := range strings.SplitSeq(line, ",") {
			if strings.TrimSpace(name) == beta {
				return true
			}
		}
	}
	return false
}

// keep holds what a thread's request and its answer add to it.
func (p *Provider) keep(a asked, t Turn) {
	if a.keep == nil {
		return
	}
	var blocks array
	raw := marshal(messagesBlocksOf(t.Say, p.sign(a, t.Say)))
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	if err := dec.Decode(&blocks); err != nil {
		panic(err) // it was made of the types here
	}
	id := name("msg_01", "messages", a.name, a.number)
	a.keep.turns = append(slices.Clip(a.keep.turns), turnOf{role: "assistant", at: "the answer " + id, blocks: blocks})
	a.keep.size += len(raw)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.threads[id] = a.keep
}
