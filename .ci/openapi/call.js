async function call(method, path, body, headers) {
  const response = await fetch(process.env.CUED_URL + path, {
    method,
    headers: {
      "Authorization": "Bearer " + process.env.CUED_API_KEY,
      "Content-Type": "application/json", ...headers },
    body: body && JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(text);
  return text ? JSON.parse(text) : null;
}
