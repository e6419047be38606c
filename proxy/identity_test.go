package proxy

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

// token makes a JSON Web Token that nobody has signed.
func token(payload, signature string) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return "Bearer " + part(`{"alg":"RS256"}`) + "." + part(payload) + "." + part(signature)
}

// unschemed is token without its scheme.
func unschemed(payload, signature string) string {
	return strings.TrimPrefix(token(payload, signature), "Bearer ")
}

const (
	aws1 = "AWS4-HMAC-SHA256 Credential=AKIAQYLPMN5HHHFPZAM2/20261130/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=aa"
	aws2 = "AWS4-HMAC-SHA256 Credential=AKIAQYLPMN5HHHFPZAM2/20261201/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=bb"
	sts1 = "AWS4-HMAC-SHA256 Credential=ASIAQYLPMN5HHHFPZAM2/20261130/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=cc"
	sts2 = "AWS4-HMAC-SHA256 Credential=ASIAQYLPMN5HFIQR7XYA/20261130/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=dd"
	sts3 = "AWS4-HMAC-SHA256 Credential=ASIAY34FZKBOKMUTVV7A/20261130/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=ee"
)

func TestARenewedCredentialIsOfTheSameTenant(t *testing.T) {
	key := PrincipalKey([]byte("k"))
	of := func(auth string, more ...string) Tenant {
		h := http.Header{"Authorization": {auth}}
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return key("a", "u", h)
	}
	for name, tt := range map[string]struct {
		before, after Tenant
		principal     bool // it stays the same
		stable        bool
	}{
		"an API key that did not change": {of("Bearer sk-1"), of("Bearer sk-1"), true, true},
		"a token with a subject": {
			of(token(`{"iss":"https://a","sub":"u1","exp":1}`, "x")), of(token(`{"exp":2,"sub":"u1","iss":"https://a"}`, "y")), false, true},
		"a token with a subject beside an opaque one": {
			of(token(`{"iss":"https://a","sub":"u1","exp":1}`, "x"), "Proxy-Authorization", "Bearer ya29.one"), of(token(`{"iss":"https://a","sub":"u1","exp":2}`, "y"), "Proxy-Authorization", "Bearer ya29.two"), false, false},
		"a signed request of a long-lived key":      {of(aws1, "X-Amz-Security-Token", ""), of(aws2), true, true},
		"a signed request of temporary credentials": {of(sts1, "X-Amz-Security-Token", "t1"), of(sts2, "X-Amz-Security-Token", "t2"), false, false},
		"an opaque token of a login":                {of("Bearer sk-ant-oat01-one"), of("Bearer sk-ant-oat01-two"), false, false},
		"an opaque token beside the account's id":   {of("Bearer ya29.one", "Chatgpt-Account-Id", "acc"), of("Bearer ya29.two", "Chatgpt-Account-Id", "acc"), false, false},
		"an encrypted token":                        {of("Bearer eyJa.b.c.d.e"), of("Bearer eyJa.b.c.d.f"), false, false},
		"a token that names its id":                 {of("Bearer tid=abc;exp=1:aa"), of("Bearer tid=abc;exp=2:bb"), false, true},
		"a token whose id is empty":                 {of("Bearer tid=;exp=1:aa"), of("Bearer tid=;exp=2:bb"), false, false},
		"a cookie that a proxy has set alone":       {key("a", "u", http.Header{"Cookie": {"cf_clearance=x"}}), key("a", "u", http.Header{"Cookie": {"cf_clearance=y"}}), true, false},
		"a cookie beside one that a proxy set anew": {of("Bearer sk-1", "Cookie", "a=1; __cf_bm=x"), of("Bearer sk-1", "Cookie", "a=1; __cf_bm=y"), true, true},
		"a token in the header of a provider's key": {
			of("", "X-Api-Key", unschemed(`{"iss":"https://a","sub":"u1","exp":1}`, "x")), of("", "X-Api-Key", unschemed(`{"iss":"https://a","sub":"u1","exp":2}`, "y")), false, true},
		"a token with a scheme in another header": {
			of("", "X-Auth", token(`{"iss":"https://a","sub":"u1","exp":1}`, "x")), of("", "X-Auth", token(`{"iss":"https://a","sub":"u1","exp":2}`, "y")), false, false},
		"a token that a gateway looks at beside a key": {
			of("Bearer sk-1", "Cf-Access-Jwt-Assertion", unschemed(`{"iss":"https://a","sub":"u1","exp":1}`, "x")), of("Bearer sk-1", "Cf-Access-Jwt-Assertion", unschemed(`{"iss":"https://a","sub":"u1","exp":2}`, "y")), false, false},
		"a token in a cookie": {
			of("Bearer sk-1", "Cookie", "a=1; CF_Authorization="+unschemed(`{"iss":"https://a","sub":"u1","exp":1}`, "x")), of("Bearer sk-1", "Cookie", "a=1; CF_Authorization="+unschemed(`{"iss":"https://a","sub":"u1","exp":2}`, "y")), false, false},
		"a token in the query": {
			key("a", "u", http.Header{"?access_token": {"ya29.one"}}), key("a", "u", http.Header{"?access_token": {"ya29.two"}}), false, false},
		"a token without an issuer": {
			of(token(`{"sub":"u1","exp":1}`, "x")), of(token(`{"sub":"u1","exp":2}`, "y")), false, false},
		"no credential at all":                     {key("a", "u", nil), key("a", "u", nil), true, false},
		"a project that is claimed and not proved": {key("a", "u", http.Header{"Openai-Project": {"p"}}), key("a", "u", http.Header{"Openai-Project": {"p"}}), true, false},
	} {
		if tt.before.Repairs != tt.after.Repairs {
			t.Errorf("%s: its repairs are lost", name)
		}
		if same := tt.before.Principal == tt.after.Principal; same != tt.principal {
			t.Errorf("%s: the principal stays the same: %t", name, same)
		}
		if tt.before.Stable != tt.stable || tt.after.Stable != tt.stable {
			t.Errorf("%s: stable %t, then %t", name, tt.before.Stable, tt.after.Stable)
		}
		if !tt.principal && tt.before.Principal == tt.before.Repairs {
			t.Errorf("%s: what may be shared has the name of what may not", name)
		}
	}
}

func TestTwoCustomersAreNotTakenForOne(t *testing.T) {
	key := PrincipalKey([]byte("k"))
	seen := map[string]string{}
	for name, auth := range map[string]string{
		"a key":                              "Bearer sk-1",
		"another key":                        "Bearer sk-2",
		"a subject with another signature":   token(`{"iss":"https://a","sub":"u1"}`, "forged"),
		"a subject of another organisation":  token(`{"iss":"https://a","sub":"u1","org":"o"}`, "x"),
		"a subject":                          token(`{"iss":"https://a","sub":"u1"}`, "x"),
		"another subject":                    token(`{"iss":"https://a","sub":"u2"}`, "x"),
		"the subject of another issuer":      token(`{"iss":"https://b","sub":"u1"}`, "x"),
		"issuer and subject cut differently": token(`{"iss":"https://a\" \"u1","sub":""}`, "x"),
		"a token without a subject":          token(`{"iss":"https://a"}`, "x"),
		"another one":                        token(`{"iss":"https://a"}`, "y"),
		"a subject that is no text":          token(`{"iss":"https://a","sub":1}`, "x"),
		"one that is no JSON":                token(`{"iss":"https://a","sub":"u1"`, "x"),
		"a key of a cloud":                   aws1,
		"temporary credentials":              sts1,
		"those of another account":           sts3,
		"a login":                            "Bearer sk-ant-oat01-one",
		"another login":                      "Bearer sk-ant-oat01-two",
		"another scheme":                     "Basic sk-1",
		"no scheme":                          "sk-1",
	} {
		p := key("a", "u", http.Header{"Authorization": {auth}}).Principal
		if other, ok := seen[p]; ok {
			t.Errorf("%s and %s have one name", name, other)
		}
		seen[p] = name
	}
	if one, two := key("a", "u", http.Header{"Authorization": {sts1}}), key("a", "u", http.Header{"Authorization": {sts3}}); one.Repairs == two.Repairs {
		t.Error("the credentials of two accounts share repairs")
	}
}

func TestWhatIsClaimedIsNoCredentialThatIsRenewed(t *testing.T) {
	key := PrincipalKey([]byte("k"))
	of := func(value string) Tenant {
		return key("a", "u", http.Header{"Authorization": {"Bearer sk-1"}, "X-User": {value}})
	}
	if one, two := of("ya29.one"), of("ya29.two"); one.Repairs == two.Repairs {
		t.Error("two users share repairs")
	}
}

func BenchmarkPrincipal(b *testing.B) {
	key := PrincipalKey([]byte("k"))
	for name, auth := range map[string]string{"key": "Bearer sk-1", "token": token(`{"iss":"https://a","sub":"u1","exp":1}`, "x")} {
		h := http.Header{"Authorization": {auth}, "Content-Type": {"application/json"}, "User-Agent": {"agent/1"}, "X-Stainless-Lang": {"js"}}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				key("a", "u", h)
			}
		})
	}
}
