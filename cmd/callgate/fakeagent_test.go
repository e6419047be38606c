package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/term"

	"callgate/proxy/providertest"
)

// fakeAgent is a program that tests start as an agent. Its first argument says
// what it does.
func fakeAgent() {
	args := append(os.Args[1:], "", "")
	switch args[0] {
	case "env": // print variables, or say that they are not set
		for _, name := range os.Args[2:] {
			v, ok := os.LookupEnv(name)
			if !ok {
				v = "(unset)"
			}
			fmt.Printf("%s=%s\n", name, v)
		}
	case "args":
		fmt.Println(strings.Join(os.Args[2:], "|"))
	case "exit":
		n, _ := strconv.Atoi(args[1])
		os.Exit(n)
	case "die": // of a signal
		signal.Reset()
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "signals": // name each signal, and end at the one in the argument
		ch := make(chan os.Signal, 8)
		signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGWINCH)
		fmt.Println("ready")
		for s := range ch {
			fmt.Println("got", s)
			if s.String() == args[1] {
				os.Exit(7)
			}
		}
	case "environ":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "raw": // as a program that draws its own screen
		if _, err := term.MakeRaw(0); err != nil {
			fmt.Println("error:", err)
		}
		os.Exit(fakeChat())
	case "chat":
		os.Exit(fakeChat())
	case "models": // ask for something that holds no call
		res, err := http.Get(os.Getenv("OPENAI_BASE_URL") + "/models")
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		res.Body.Close()
	case "talk": // write to the terminal without an end
		go func() {
			for i := 0; ; i++ {
				fmt.Printf("tick %d\n", i)
				time.Sleep(20 * time.Millisecond)
			}
		}()
		os.Exit(fakeChat())
	default:
		fmt.Println("fakeagent", strings.Join(os.Args[1:], " "))
	}
}

// fakeChat asks for one thing and says what came back, until no call comes.
func fakeChat() int {
	a := &demoAgent{base: strings.TrimSuffix(os.Getenv("OPENAI_BASE_URL"), "/v1")}
	a.add(map[string]any{"role": "user", "content": "go on"})
	for range 8 {
		msg, err := a.next(context.Background())
		if err != nil {
			fmt.Println("error:", err)
			return 1
		}
		if msg.Content != "" {
			fmt.Println("text:", strings.ReplaceAll(msg.Content, "\n", " / "))
		}
		if len(msg.Calls) == 0 {
			return 0
		}
		for _, c := range msg.Calls {
			fmt.Println("call:", c.Name, c.Args)
			a.add(map[string]any{"role": "tool", "tool_call_id": c.ID, "content": "done"})
		}
	}
	return 1
}

// agentScript is what the provider of tests says: a harmless call, a dangerous
// one and a text.
func agentScript() providertest.Script {
	return providertest.Script{
		demoCall("call_list", "ls"),
		demoCall("call_clean", "rm -rf ~/projects"),
		demoWords("all done"),
	}
}

// scriptProvider starts a provider and puts its address into PROVIDER.
func scriptProvider(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: provider")
	}
	srv := httptest.NewServer(providertest.New(agentScript()))
	ts.Defer(srv.Close)
	ts.Setenv("PROVIDER", srv.URL)
}
