// A question, a card that asks for consent where the agent pauses, and the answer. The token of the pause stays on the server.
const { createElement: h, useEffect, useState } = React;
const { ApprovalCard } = ToolpostApprovalCard;

async function post(path, body) {
  const reply = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body ?? {}),
  });
  return reply.json();
}

function App() {
  const [query, setQuery] = useState("Create an issue in my private repo");
  const [result, setResult] = useState(null);

  useEffect(() => {
    const resume = async (event) => {
      if (event.origin === location.origin && event.data === "connected") setResult(await post("/api/resume"));
    };
    addEventListener("message", resume);
    return () => removeEventListener("message", resume);
  }, []);

  const ask = async (event) => {
    event.preventDefault();
    setResult(await post("/api/run", { query }));
  };

  return h(
    "div",
    null,
    h("h1", null, "Ask the agent"),
    h(
      "form",
      { onSubmit: ask },
      h("input", { value: query, "aria-label": "Question", onChange: (event) => setQuery(event.target.value) }),
      h("button", null, "Ask"),
    ),
    result?.status === "paused" &&
      h(ApprovalCard, {
        action: result.action,
        onConnect: () => open(result.authUrl, "sign-in", "popup,width=480,height=640"),
      }),
    result?.status === "finished" && h("p", { className: "card", role: "status" }, result.answer),
  );
}

ReactDOM.createRoot(document.getElementById("app")).render(h(App));
